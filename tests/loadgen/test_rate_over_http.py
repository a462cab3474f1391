"""The rate search over HTTP against servers of known capacity, each a process of its own."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks import queue_servers
from benchmarks.queue_servers import BatchEngine, Server, Works, capacity
from benchmarks.rate_cases import KINDS, SHARES
from loadgen import queue_server
from loadgen.queue_server import Slots
from tokenpeak.loadgen.job import LoadJob, run_job

RATE_PER_S, TIGHT_RATE_PER_S = 30.0, 10.0
"""The truth; lower where limits are so tight at 30/s that the server's own lateness would be a part of them."""
TIGHT = (
    "1 slot, d",
    "8 slots, deterministic",
    "32 slots",
    "2 slots",
    "8 slots, exponential, tight",
    "batch engine, TPOT",
)
CASES = [*((kind, 1) for kind in KINDS), ("8 slots, exponential, loose", 2), ("batch engine, TTFT", 2)]
"""Searches of at most 140 s, or 420 s where the rate is lower, and what they take to compute: about an hour."""
LATE_SHARE = 0.03
"""Of the tightest limit: a server whose answers are later is not the one whose rate is known."""


def parameters(server: Server, scale: float, seed: int) -> dict[str, Any]:
    """The server `scale` times as fast, as its process is given it."""
    if isinstance(server, BatchEngine):
        return {
            "seed": seed,
            "batch": server.batch,
            "works": server.tokens.kind,
            "mean": server.tokens.mean_s,
            "shape": server.tokens.shape,
            "step_s": server.step_s / scale,
            "per_request_s": server.per_request_s / scale,
            "per_prompt_s": server.per_prompt_s / scale,
            "prompts_a_step": server.prompts_a_step,
        }
    works = server.works
    return {
        "seed": seed,
        "slots": server.slots,
        "processors": server.processors,
        "works": works.kind,
        "mean": works.mean_s / scale,
        "shape": works.shape,
    }


@contextmanager
def serving(given: dict[str, Any]) -> Iterator[str]:
    """Its address, while it runs."""
    argv = [sys.executable, str(Path(__file__).with_name("queue_server.py")), json.dumps(given)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def run(url: str, folder: Path, level: dict[str, Any]) -> Any:
    """The record of one run at a load."""
    workload = {"kind": "synthetic", "name": "queue", "input_tokens": 16, "output_tokens": 256}
    job = {"base_url": url, "model": "queue", "output_dir": folder}
    return run_job(LoadJob.model_validate({**job, "runs": [{"run_index": 0, "workload": workload, "level": level}]}))[0]


class Client:
    """Notes when its server answers it, on the server's own clock."""

    def __init__(self, engine: Slots | queue_server.BatchEngine) -> None:
        self.engine = engine
        self.first_s = self.last_s = self.tokens = 0.0

    def now(self) -> float:
        """When the server answers."""
        return self.engine.clock if isinstance(self.engine, Slots) else self.engine.end or 0.0

    def first(self) -> None:
        """The first token has come."""
        self.first_s = self.now()

    def last(self, tokens: int) -> None:
        """The last token has come."""
        self.last_s, self.tokens = self.now(), tokens


@pytest.mark.parametrize(
    "server",
    [
        queue_servers.Slots(4, Works("deterministic")),
        queue_servers.Slots(10**6, Works("deterministic"), 1.0),
        queue_servers.Slots(6, Works("deterministic"), 3.0),
        BatchEngine(tokens=Works("deterministic", 24.0)),
        BatchEngine(batch=8, tokens=Works("deterministic", 24.0), prompts_a_step=1),
    ],
)
def test_server_process_is_the_simulated_server(server: Server) -> None:
    """Its clock gives every request the same moments, busy and idle."""
    random = np.random.default_rng(5)
    due = np.concatenate([[0.0], np.cumsum(random.exponential(1.0, 400))]) / (0.9 * capacity(server))
    expected = server.serve(due, random)

    async def served() -> list[Client]:
        given = parameters(server, 1.0, 1)
        engine = queue_server.BatchEngine(given) if "batch" in given else Slots(given)
        if isinstance(engine, Slots):
            engine.clock = 0.0
        clients = [Client(engine) for _ in due]
        for client, moment in zip(clients, due.tolist(), strict=True):
            engine.advance(moment)
            engine.come(client, moment)  # type: ignore[arg-type]
        engine.advance(1e9)
        engine.alarm.set(None)
        return clients

    clients = asyncio.run(served())

    assert expected.first_s == pytest.approx([client.first_s for client in clients])
    assert expected.last_s == pytest.approx([client.last_s for client in clients])
    assert expected.tokens == pytest.approx([client.tokens for client in clients])


@pytest.mark.e2e
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_rate_over_http(kind: str, seed: int, tmp_path: Path) -> None:
    """The answer is within 5% of the truth and not above capacity, in ten probes and the time given."""
    server, arriving, limits = KINDS[kind]
    rate_per_s = TIGHT_RATE_PER_S if kind.startswith(TIGHT) else RATE_PER_S
    scale = rate_per_s / (SHARES[kind] * capacity(server))
    slo = {f"{metric[:-2]}_p{percent}_ms": limit / scale * 1e3 for metric, percent, limit in limits}
    level = {"max_rate_under": slo, "arrivals": arriving}
    if arriving == "gamma":
        level["burstiness"] = 0.5
    with serving(parameters(server, scale, seed)) as url:
        found = run(url, tmp_path, level).max_rate
        late_s = httpx.get(f"{url}/stats").json()["p99_s"]
    sys.stdout.write(
        f"{kind}, {seed}: {found.rate_per_s or 0:.2f}/s of {rate_per_s:g} ({found.low_per_s or 0:.2f} to "
        f"{found.high_per_s or 0:.2f}), {len(found.probes)} probes, {found.duration_s:.0f} s; "
        f"server late by {late_s * 1e3:.1f} ms at p99\n"
    )
    tightest_s = min(limit for _, _, limit in limits) / scale
    if late_s > LATE_SHARE * tightest_s:
        pytest.skip(f"The machine is too busy: the server was late by {late_s:.3f} s, its limit is {tightest_s:.3f} s.")

    assert found.rate_per_s == pytest.approx(rate_per_s, rel=0.05)
    assert found.rate_per_s <= 1.01 * scale * capacity(server)
    assert len(found.probes) <= 10
    # 4,200 requests at the rate, and the closed loops' end.
    assert found.duration_s <= 4800 / rate_per_s + 20
