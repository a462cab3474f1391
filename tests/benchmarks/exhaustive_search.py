"""The search beside an exhaustive `vllm bench sweep serve`: the same 40 configs of the real engine, an hour in all.

Both meet one load, that of the sweep `search-cpu`: as many tokens, requests and streams, and as many to warm up. The
peer launches every config once and runs it three times. The search has ten trials, then finalists with their launches.
Its choices are looked up in the winner group of what the peer found, where the run is the unit, as there is but one
launch of each config.

`make exhaustive` runs it, on a quiet machine. What the peer measured stays in `.tokenpeak/exhaustive`; a part of it
that has ended is not done again.
"""

import itertools
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.vllm_bench_serve import CpuEngine, engine_environment, installed
from tokenpeak import paths
from tokenpeak.ranking.ties import winner_group
from tokenpeak.search.finals import SCREENING_LAUNCHES
from tokenpeak.search.history import history_of
from tokenpeak.search.strategy import make_strategy
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive

SWEEP = "search-cpu"
RUNS = 3
PORT = 18_198
KEPT = paths.ROOT / ".tokenpeak" / "exhaustive"

Json = dict[str, Any]


def sweep_all(engine: CpuEngine, spec: Json) -> float:
    """Measure every config with the peer, which has a sweep for each `threads`; answers the seconds that took."""
    seconds = 0.0
    for threads in spec["axes"]["threads"]:
        part = KEPT / threads["name"]
        ended = part / "seconds.json"
        if not ended.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            axes = {name: values for name, values in spec["axes"].items() if name != "threads"}
            configs = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
            (part / "serve.json").write_text(json.dumps(configs))
            begun = time.monotonic()
            with (part / "log.txt").open("w") as log:
                environment = {**engine_environment(), **threads["env"]}
                subprocess.run(_peer(engine, spec, part), env=environment, check=True, stdout=log, stderr=log)
            ended.write_text(json.dumps(time.monotonic() - begun))
        seconds += float(json.loads(ended.read_text()))
    return seconds


def _peer(engine: CpuEngine, spec: Json, part: Path) -> list[str]:
    """The peer's command for one value of `threads`."""
    workload, level = spec["workloads"][0]["workload"], spec["workloads"][0]["levels"][0]
    vllm, url = str(engine.executable), f"http://127.0.0.1:{PORT}"
    serve = [
        *(vllm, "serve", str(engine.model), "--served-model-name", "small", "--host", "127.0.0.1", "--port", str(PORT)),
        *("--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager"),
    ]
    bench = [
        *(vllm, "bench", "serve", "--backend", "openai", "--base-url", url, "--model", "small"),
        *("--tokenizer", str(engine.model), "--dataset-name", "random", "--ignore-eos", "--disable-tqdm"),
        *("--random-input-len", str(workload["input_tokens"]), "--random-output-len", str(workload["output_tokens"])),
        *("--num-prompts", str(level["requests"]), "--max-concurrency", str(level["concurrency"])),
        *("--num-warmups", str(level["warmup_requests"])),
    ]
    return [
        *(vllm, "bench", "sweep", "serve", "--serve-cmd", shlex.join(serve), "--bench-cmd", shlex.join(bench)),
        *("--serve-params", str(part / "serve.json"), "--num-runs", str(RUNS)),
        *("--output-dir", str(part), "--experiment-name", "runs"),
    ]


def runs_of_all(spec: Json) -> dict[str, list[float]]:
    """The throughput of each of the peer's runs, by config name."""
    runs: dict[str, list[float]] = {}
    for threads in spec["axes"]["threads"]:
        for path in sorted((KEPT / threads["name"] / "runs").glob("*/summary.json")):
            for run in json.loads(path.read_text()):
                taken = {axis: run[axis] for axis in spec["axes"] if axis != "threads"} | {"threads": threads["name"]}
                name = ", ".join(f"{axis}={str(value).lower()}" for axis, value in taken.items())
                runs.setdefault(name, []).append(run["output_throughput"])
    return runs


def search() -> tuple[Archive, float, float]:
    """Search as a user would; answers the archive, when it began (Unix time) and the seconds until its site stood."""
    before = set(paths.RESULTS.glob("*"))
    begun_at = time.time()
    tokenpeak = str(Path(sys.executable).with_name("tokenpeak"))
    subprocess.run([tokenpeak, "sweep", "--inventory", "cpu", "--sweep", SWEEP], check=True)
    (folder,) = set(paths.RESULTS.glob("*")) - before
    return Archive(folder), begun_at, time.time() - begun_at


def choices(archive: Archive) -> tuple[str, str, float]:
    """The config to take after the trials alone and after the finalists, and when the trials had ended (Unix time)."""
    sweep, trials = archive.read_sweep(), list(archive.trials())
    spec, plan = parse_spec(sweep.spec, archive.path / "sweep.json"), sweep.plans[0]
    history = history_of(trials, spec, plan.hardware)
    strategy = make_strategy(spec.search, plan, metric=spec.objective.metric)
    names = {planned.config.config_id: planned.config.name for planned in plan.feasible}
    first = strategy.choose([outcome for outcome in history if outcome.replicate < SCREENING_LAUNCHES])
    last = strategy.choose(history)
    assert first is not None and last is not None, "no config ran"
    screened = [trial for trial in trials if trial.replicate < SCREENING_LAUNCHES]
    ended_at = max(trial.started_at.timestamp() + (trial.duration_s or 0.0) for trial in screened)
    return names[first], names[last], ended_at


def lines(engine: CpuEngine) -> Iterator[str]:
    """The results, as they become known."""
    spec = yaml.safe_load((paths.SWEEPS / f"{SWEEP}.yml").read_text())
    theirs_s = sweep_all(engine, spec)
    runs = runs_of_all(spec)
    (KEPT / "exhaustive.json").write_text(json.dumps({"seconds": theirs_s, "output_tok_per_s": runs}, indent=1))
    verdicts = winner_group(runs)
    best = verdicts.standings[0]
    count = len(verdicts.standings)
    noise = f"{verdicts.noise:.1%}" if verdicts.noise is not None else "unknown"
    yield f"vllm bench sweep serve: {count} configs, {RUNS} runs each, {theirs_s:.0f} s; runs vary by {noise}"
    yield f"  best: {best.config}, {best.mean:,.0f} tok/s; winner group of {len(verdicts.group)}"
    archive, begun_at, whole_s = search()
    first, last, ended_at = choices(archive)
    standings = {standing.config: standing for standing in verdicts.standings}
    for what, config, seconds in (("trials alone", first, ended_at - begun_at), ("with finalists", last, whole_s)):
        standing = standings[config]
        place = "in the winner group" if standing.in_group else "not in the winner group"
        yield (
            f"search, {what}: {seconds:.0f} s, {seconds / theirs_s:.2f} of the peer's time; took {config}: rank"
            f" {standing.rank} of {count}, {standing.ratio:.3f} of its best, {place}"
        )


if __name__ == "__main__":
    found = installed()
    if found is None:
        sys.exit("No engine here: `make sweep INVENTORY=cpu` installs one.")
    for line in lines(found):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
