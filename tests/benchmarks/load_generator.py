"""Benchmark of the load generator: accuracy and CPU per token against their limits. `make bench`.

The test server and the peers run on the same machine in the same minute: the ratio between them means more than the
milliseconds. Peers: httpx with one client for all streams, and `vllm bench serve`. `--only NAME` (repeatable) runs a
part: streams, rate, search, engine, peers, vllm. `engine` and `vllm` take some minutes each. `--cases N`: how many
searches in virtual time; two hundred take an hour of one core, and those that have ended are kept.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import httpx
import numpy as np
import uvloop

from benchmarks import rate_search, vllm_bench_serve
from tokenpeak.loadgen.job import LoadJob, run_job
from tokenpeak.loadgen.test_server_process import local_test_server
from tokenpeak.paths import state_dir
from tokenpeak.records import RunRecord

TTFT_S = 0.050
ITL_S = 0.020
STREAMS = 256
TOKENS = 64
ROUNDS = 4
SEARCHES = 18
ENGINE_CASES = 5


@dataclass(frozen=True, kw_only=True)
class Line:
    """A figure of the table: what was measured, its limit, and whether less is better."""

    what: str
    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def reached(self) -> bool:
        """Whether the limit is held."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def _run(url: str, level: dict[str, object], output_tokens: int, **keys: object) -> RunRecord:
    workload = {"kind": "synthetic", "name": "bench", "input_tokens": 128, "output_tokens": output_tokens}
    with tempfile.TemporaryDirectory() as folder:
        run = {"run_index": 0, "workload": workload, "level": level, **keys}
        job = {"base_url": url, "model": "timetable", "output_dir": Path(folder), "runs": [run]}
        return run_job(LoadJob.model_validate(job))[0]


def _value(value: float | None) -> float:
    return float("nan") if value is None else value


def _server_late(url: str) -> str:
    late = httpx.get(f"{url}/stats").json()
    return f"server itself late p50 {late['p50_s'] * 1e3:.2f}, p99 {late['p99_s'] * 1e3:.2f} ms"


def streams() -> Iterator[Line | str]:
    """256 and 1,024 streams against the timetable."""
    with local_test_server(TTFT_S, ITL_S) as url:
        record = _run(url, {"concurrency": STREAMS, "requests": STREAMS * ROUNDS}, TOKENS)
        late = _server_late(url)
        summary = record.summary
        yield Line(
            what="256 streams: TTFT error p50", value=(_value(summary.ttft_s.p50) - TTFT_S) * 1e3, limit=2, unit="ms"
        )
        yield Line(
            what="256 streams: TTFT error p99", value=(_value(summary.ttft_s.p99) - TTFT_S) * 1e3, limit=5, unit="ms"
        )
        yield Line(
            what="256 streams: ITL error p99", value=(_value(summary.itl_s.p99) - ITL_S) * 1e3, limit=3, unit="ms"
        )
        yield Line(what="CPU per token", value=_value(record.client.cpu_per_token_s) * 1e6, limit=12, unit="µs")
        yield late
        record = _run(url, {"concurrency": 1024, "requests": 2048}, 100)
        late = _server_late(url)
        summary = record.summary
        truth = TTFT_S + 99 * ITL_S
        yield Line(
            what="1,024 streams × 50 tok/s: sustained",
            value=100 * truth / _value(summary.latency_s.mean),
            limit=98,
            unit="%",
            at_least=True,
        )
        yield Line(
            what="1,024 streams: TTFT error p99",
            value=(_value(summary.ttft_s.p99) - TTFT_S) * 1e3,
            limit=10,
            unit="ms",
        )
        yield late


def rate() -> Iterator[Line | str]:
    """An open loop at 200 requests a second."""
    with local_test_server(TTFT_S, ITL_S) as url:
        record = _run(url, {"rate_per_s": 200, "requests": 2000, "warmup_requests": 100}, 16)
    yield Line(
        what="open loop at 200/s: dispatch delay p99",
        value=_value(record.client.dispatch_delay_s.p99) * 1e3,
        limit=2,
        unit="ms",
    )


def search(number: int = SEARCHES) -> Iterator[Line | str]:
    """The rate search on simulated servers in virtual time, beside the truth and a bisection."""
    found = rate_search.cases(number, state_dir() / "rate-search.jsonl")
    yield from (*rate_search.table(found), *rate_search.summary(found))
    within = float(np.mean([abs(case.error) <= 0.05 for case in found]))
    covered = float(np.mean([case.covered for case in found]))
    above = max(case.above_capacity for case in found)
    probes = float(np.median([case.probes for case in found]))
    what = f"rate search, {len(found)} cases"
    yield Line(what=f"{what}: within 5%", value=100 * within, limit=95, unit="%", at_least=True)
    yield Line(what=f"{what}: above capacity", value=100 * above, limit=1, unit="%")
    yield Line(what=f"{what}: interval holds the truth", value=100 * covered, limit=85, unit="%", at_least=True)
    yield Line(what=f"{what}: median probes", value=probes, limit=8, unit="probes")


@contextmanager
def _simulated_engine(seed: int) -> Iterator[str]:
    port = 18_200 + seed
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tokenpeak.sim.engine", "serve", "meta-llama/Llama-3.1-8B-Instruct"),
                *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "timetable"),
                *("--max-num-seqs", str(8 + 4 * seed), "--max-model-len", "4096"),
            ],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "TOKENPEAK_SIM_GPU": "NVIDIA H100 80GB HBM3",
                "TOKENPEAK_SIM_DIR": folder,
                "TOKENPEAK_SIM_START_S": "0.5",
                "TOKENPEAK_SIM_SEED": str(seed),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 30
            while time.monotonic() < end:
                try:
                    if httpx.get(f"{url}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(10)


def engine() -> Iterator[Line | str]:
    """The rate search over HTTP against the simulated engine: what it found must hold 5% below and miss 5% above."""
    good = 0
    for seed in range(ENGINE_CASES):
        with _simulated_engine(seed) as url:
            slo = {"ttft_p95_ms": 250.0}
            level = {
                "max_rate_under": slo,
                "arrivals": "constant",
                "screening_requests": 200,
                "confirming_requests": 600,
            }
            found = _run(url, level, 16).max_rate
            assert found is not None
            if found.rate_per_s is None:
                yield f"engine {seed}: {found.ended}"
                continue
            held = []
            for factor in (0.95, 1.05):
                level = {"rate_per_s": found.rate_per_s * factor, "arrivals": "constant", "requests": 1000}
                held.append(_run(url, level, 16, slo=slo).slo_met)
            right = held == [True, False]
            good += right
            yield (
                f"engine {seed}: {found.rate_per_s:.2f}/s in {len(found.probes)} probes; "
                f"5% below {'holds' if held[0] else 'misses'}, 5% above {'holds' if held[1] else 'misses'}"
            )
    yield Line(
        what=f"rate search over HTTP, {ENGINE_CASES} engines: within 5%",
        value=good,
        limit=ENGINE_CASES,
        unit="cases",
        at_least=True,
    )


async def _peer(url: str, client: httpx.AsyncClient) -> tuple[list[float], float]:
    """TTFTs as an httpx client sees them, and its CPU per token."""
    body = {"model": "timetable", "prompt": "x", "max_tokens": TOKENS, "stream": True}
    seen: list[float] = []

    async def one() -> None:
        for _ in range(ROUNDS):
            sent = perf_counter()
            first = None
            async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        first = first or perf_counter()
                        json.loads(line[6:])
            seen.append((first or perf_counter()) - sent)

    cpu = process_time()
    await asyncio.gather(*(one() for _ in range(STREAMS)))
    return seen, (process_time() - cpu) / (STREAMS * ROUNDS * TOKENS)


def peers() -> Iterator[Line | str]:
    """The same 256 streams through httpx: why runs do not go through it."""
    unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with local_test_server(TTFT_S, ITL_S) as url:

        async def go() -> tuple[list[float], float]:
            async with httpx.AsyncClient(timeout=120, limits=unlimited) as client:
                return await _peer(url, client)

        seen, cpu = uvloop.run(go())
    p50, p99 = np.percentile(seen, (50, 99)) - TTFT_S
    yield f"httpx: TTFT error p50 {p50 * 1e3:.1f}, p99 {p99 * 1e3:.1f} ms; CPU per token {cpu * 1e6:.1f} µs"


def vllm() -> Iterator[Line | str]:
    """The client and `vllm bench serve` in turns against vLLM on this machine's CPU."""
    found = vllm_bench_serve.installed()
    if found is None:
        yield "vllm bench serve: skipped, no engine here (`make sweep INVENTORY=cpu` installs one)"
        return
    yield from vllm_bench_serve.lines(found)


PARTS: dict[str, Callable[[], Iterator[Line | str]]] = {
    "streams": streams,
    "rate": rate,
    "search": search,
    "peers": peers,
    "engine": engine,
    "vllm": vllm,
}


def main() -> int:
    """Print the table; exit status 1 when a limit was missed."""
    options = argparse.ArgumentParser()
    options.add_argument("--only", action="append", choices=list(PARTS))
    options.add_argument("--cases", type=int, default=SEARCHES)
    given = options.parse_args()
    parts: dict[str, Callable[[], Iterator[Line | str]]] = {**PARTS, "search": partial(search, given.cases)}
    missed = 0
    for name in given.only or list(PARTS):
        for line in parts[name]():
            if isinstance(line, str):
                text = f"    {line}"
            else:
                sign = "≥" if line.at_least else "≤"
                mark = "ok" if line.reached else "MISSED"
                missed += not line.reached
                text = f"{line.what:48} {line.value:9.2f} {line.unit:7} must be {sign} {line.limit:g}  {mark}"
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
