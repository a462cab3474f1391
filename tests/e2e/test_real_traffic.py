"""The workload from production against a real vLLM: clients that share no code with us ask it for ten minutes.

`tokenpeak observe` sees only its metrics. What comes of that is held against what the clients alone know: lengths, TTFT
and TPOT of the replay, prefix hits by vLLM's own count, and the choice among six configs by their throughput for the
clients' own requests.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from subprocess import CompletedProcess

import polars as pl
import pytest
import yaml
from scipy import stats
from tests.e2e import traffic_generator
from tests.e2e.cpu_vllm import ENGINE, ENVIRONMENT, MODEL, NAME, NEEDED, READY_S, is_ready, prefix_hits, served
from tests.e2e.traffic_generator import Seen
from tests.free_ports import free_port

from tokenpeak import paths
from tokenpeak.node.machine import clock

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
# The engine computes on one core; clients, and what reads its metrics, have the other.
ON_ONE_CORE = {**ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": "0"}
SETTINGS = ("--max-model-len", "2048", "--dtype", "bfloat16")
SECONDS, RATE_PER_S = 600.0, 3.0
PARTS = 10
"""In so many parts clients and replay alternate: the speed of this machine drifts by a third within minutes."""
CLIENTS = 16
CLOSED = 320
ROUNDS = 2
CONFIGS = list(product(("--enable-prefix-caching", "--no-enable-prefix-caching"), (4, 16, 64)))
"""Six: with and without a prefix cache, and few to many requests at a time."""
HOST = "127.0.0.1"

pytestmark = [pytest.mark.e2e, NEEDED]


@dataclass(frozen=True, kw_only=True)
class Production:
    """A real engine that a node serves with, and the clients that asked it while it was observed."""

    port: int
    root: Path
    state: Path
    trace: Path
    seen: list[Seen]
    """What the clients saw while it was observed."""
    began_s: float
    """When the observation began, as clients count."""
    hit_rate: float
    """By vLLM's own count, over the time of the clients."""

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{HOST}:{self.port}"


def typed(root: Path, state: Path, *words: str, before: Callable[[], None] | None = None) -> CompletedProcess[str]:
    """A command in a checkout of its own; `before` is called in its process."""
    environment = {**os.environ, "TOKENPEAK_HOME": str(root), "TOKENPEAK_STATE": str(state)}
    argv = [TOKENPEAK, *words]
    return subprocess.run(argv, env=environment, preexec_fn=before, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, int]]:
    """A checkout whose node's production is the real engine."""
    root, state, port = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("state"), free_port()
    for name in ("playbooks", "notebooks", "site"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.INVENTORIES / "cpu", root / "inventory" / "cpu")
    shutil.copytree(paths.SWEEPS, root / "analysis" / "sweeps")
    hosts = root / "inventory" / "cpu" / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("{{ loopback }}.3", HOST))
    variables = root / "inventory" / "cpu" / "group_vars" / "all.yml"
    content = yaml.safe_load(variables.read_text())
    content["tokenpeak_setup_roles"] = ["cpu_engine"]
    argv = [str(ENGINE / "vllm"), "serve", str(MODEL), "--served-model-name", NAME]
    content["tokenpeak_production"] = {
        "manager": "command",
        "url": f"http://{HOST}:{port}",
        "process": {
            "argv": [*argv, "--host", HOST, "--port", str(port), *SETTINGS, "--enforce-eager"],
            "env": ON_ONE_CORE,
        },
    }
    del content["tokenpeak_simulated_machine"]
    variables.write_text(yaml.safe_dump(content))
    done = typed(root, state, "probe", "--inventory", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert clock.wait_until(lambda: is_ready(f"http://{HOST}:{port}"), READY_S, 1.0), done.stdout + done.stderr
    yield root, state, port
    for process in state.glob("nodes/*/production.json"):
        # The choice among configs has ended it already.
        with suppress(ProcessLookupError):
            os.killpg(json.loads(process.read_text())["pid"], 15)


@pytest.fixture(scope="module")
def production(checkout: tuple[Path, Path, int]) -> Production:
    """Production after ten minutes of clients, and what `observe` made of them."""
    root, state, port = checkout
    url = f"http://{HOST}:{port}"
    # Some seconds before and after: what is observed is in the middle of what is asked.
    asked = traffic_generator.requests(SECONDS + 40, RATE_PER_S, seed=1)
    traffic_generator.at_their_times(HOST, port, NAME, asked[:20])
    found: list[Seen] = []
    clients = threading.Thread(target=lambda: found.extend(traffic_generator.at_their_times(HOST, port, NAME, asked)))
    before = prefix_hits(url)
    began = time.perf_counter()
    clients.start()
    time.sleep(1)
    done = typed(root, state, "observe", "--inventory", "cpu", "--for", f"{SECONDS:g}s")
    until_s = time.perf_counter() - began
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    trace = root / "traffic.json"
    trace.write_text(done.stdout)
    clients.join()
    after = prefix_hits(url)
    # Those that were asked while the metrics were read.
    seen = [each for each in found if until_s - SECONDS <= each.asked.due_s <= until_s]
    share = (after[0] - before[0]) / (after[1] - before[1])
    return Production(
        port=port, root=root, state=state, trace=trace, seen=seen, began_s=until_s - SECONDS, hit_rate=share
    )


def replayed(production: Production, folder: Path, begin_s: float, end_s: float, seed: int) -> pl.DataFrame:
    """Each request of the replay of a part of the trace; measured like a stopwatch, as the clients are."""
    window = {"begin_s": begin_s, "end_s": end_s}
    job = {
        "base_url": production.url,
        "model": NAME,
        "output_dir": str(folder / "output"),
        "run_deadline_s": 2 * SECONDS,
        "runs": [
            {
                "run_index": 0,
                "workload": {"kind": "trace", "name": "own", "path": str(production.trace), **window},
                "level": {"replay": True},
                "slo": {},
                "seed": seed,
            }
        ],
    }
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    words = ("load", "--job", str(folder / "job.json"))
    done = typed(production.root, production.state, *words, before=traffic_generator.as_a_stopwatch)
    assert done.returncode == 0, done.stderr
    requests = pl.read_parquet(folder / "output" / "requests.parquet")
    assert requests["error"].null_count() == requests.height
    return requests


def repeated(production: Production, begin_s: float, end_s: float, seed: int) -> list[Seen]:
    """What the clients see who ask the same lengths at the same times, with as many new beginnings."""
    first_s = production.began_s + begin_s
    part = [each.asked for each in production.seen if first_s <= each.asked.due_s < production.began_s + end_s]
    again = traffic_generator.afresh(part, random.Random(seed), first_s)
    return traffic_generator.at_their_times(HOST, production.port, NAME, again)


def throughput(url: str, folder: Path, *words: str) -> float:
    """Output tokens per second of a closed loop of ours."""
    amount = ("--concurrency", str(CLIENTS), "--requests", str(CLOSED), "--format", "json")
    done = subprocess.run([TOKENPEAK, "load", url, *words, *amount], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return float(json.loads(done.stdout)["summary"]["output_tok_per_s"])


def apart(first: Sequence[float], second: Sequence[float]) -> float:
    """Kolmogorov's distance."""
    return float(stats.ks_2samp(first, second).statistic)


def test_replay_is_production(production: Production, tmp_path: Path) -> None:
    """Distances of at most 0.1 in what was asked and in how it was answered; hits within two points.

    Clients and replay take turns part by part, so that a slow minute of this machine falls on both. Each part has
    beginnings of its own, of both: that costs the replay a point of hits.
    """
    seen, replays = [], []
    hits = lookups = 0.0
    for turn, part in enumerate([*range(PARTS)] * ROUNDS):
        window = (part * SECONDS / PARTS, (part + 1) * SECONDS / PARTS)
        for who in ("clients", "replay") if turn % 2 else ("replay", "clients"):
            if who == "clients":
                seen += repeated(production, *window, seed=turn)
                continue
            before = prefix_hits(production.url)
            replays.append(replayed(production, tmp_path / str(turn), *window, seed=turn))
            after = prefix_hits(production.url)
            hits, lookups = hits + after[0] - before[0], lookups + after[1] - before[1]
    requests = pl.concat(replays)
    ttft_s = [each.ttft_s for each in seen]
    tpot_s = [each.tpot_s for each in seen]
    distances = {
        "prompts": apart([len(each.asked.prompt) for each in production.seen], requests["input_tokens"].to_list()),
        "answers": apart([each.asked.output_tokens for each in production.seen], requests["output_tokens"].to_list()),
        "TTFT": apart(ttft_s, (requests["first_token_s"] - requests["sent_s"]).to_list()),
        "TPOT": apart(
            tpot_s,
            requests.filter(pl.col("output_tokens") > 1)
            .select((pl.col("last_token_s") - pl.col("first_token_s")) / (pl.col("output_tokens") - 1))
            .to_series()
            .to_list(),
        ),
    }
    drift = {
        "TTFT": apart([each.ttft_s for each in production.seen], ttft_s),
        "TPOT": apart([each.tpot_s for each in production.seen], tpot_s),
    }
    print(f"{len(seen)} requests, replayed {requests.height}: {distances}; clients against themselves before: {drift}")
    print(f"prefix hits {production.hit_rate:.4f}, replayed {hits / lookups:.4f}")
    assert max(distances.values()) <= 0.1, distances
    assert hits / lookups == pytest.approx(production.hit_rate, abs=0.02)


def test_choice_on_it_is_the_choice_on_the_truth(production: Production, tmp_path: Path) -> None:
    """Of six configs the one that is best by the trace gives at most 2% less on what the clients really ask."""
    (process,) = production.state.glob("nodes/*/production.json")
    os.killpg(json.loads(process.read_text())["pid"], 15)
    assert clock.wait_until(lambda: not is_ready(production.url), 60, 0.5)
    workloads = {
        "trace": ("--trace", str(production.trace)),
        "default": ("--input-tokens", "128", "--output-tokens", "64"),
    }
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in ("truth", *workloads)}
    for cache, seats in CONFIGS:
        config = f"{cache} {seats}"
        settings = (*SETTINGS, cache, "--max-num-seqs", str(seats))
        with served(tmp_path / "log", *settings, environment=ON_ONE_CORE) as url:
            port = int(url.rpartition(":")[2])
            for number in range(ROUNDS):
                # Beginnings of their own each time: what is asked again is in the cache whole.
                asked = traffic_generator.requests(SECONDS, RATE_PER_S, seed=10 + number)[:CLOSED]
                truth = traffic_generator.at_once(HOST, port, NAME, asked, CLIENTS)
                figures["truth"].setdefault(config, []).append(truth)
                for name, words in workloads.items():
                    more = (*words, "--seed", str(number))
                    figures[name].setdefault(config, []).append(throughput(url, tmp_path, *more))
        print(config, {name: [round(value) for value in each[config]] for name, each in figures.items()}, flush=True)

    means = {name: {config: fmean(values) for config, values in each.items()} for name, each in figures.items()}
    best = max(means["truth"].values())
    regrets = {name: 1 - means["truth"][max(means[name], key=means[name].__getitem__)] / best for name in workloads}
    print(f"regret on the trace {regrets['trace']:.1%}, on the default workload {regrets['default']:.1%}")
    assert regrets["trace"] <= 0.02, (regrets, means)
