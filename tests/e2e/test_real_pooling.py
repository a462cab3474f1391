"""Pooling models on a real vLLM: its own counters agree with ours, and a sweep goes from command to page."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cpu_vllm import ENGINE, NEEDED, counted, served
from tests.free_ports import free_port

from tokenpeak import paths
from tokenpeak.loadgen import vocabulary

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))

pytestmark = [pytest.mark.e2e, NEEDED]

REQUESTS, INPUTS, TOKENS, QUERY = 40, 6, 48, 8
ENDPOINTS: dict[str, dict[str, dict[str, Any]]] = {
    "embedder": {"embeddings": {}},
    "reranker": {"rerank": {"query_tokens": QUERY}, "score": {"query_tokens": QUERY}, "classify": {}},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of embeddings and a tiny reranker."""
    folder = tmp_path_factory.mktemp("models")
    script = Path(__file__).with_name("pooling_models.py")
    words = Path(vocabulary.__file__).with_name("words.txt")
    subprocess.run([str(ENGINE / "python"), str(script), str(folder), str(words)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("model", [*ENDPOINTS])
def test_counts_are_the_engines_own(models: Path, model: str, tmp_path: Path) -> None:
    """At each endpoint: the engine counts the same prompt tokens, and as many sequences as texts were sent."""
    with served(tmp_path / "log", model=models / model, name=model) as url:
        for endpoint, more in ENDPOINTS[model].items():
            workload = {"kind": "pooling", "name": endpoint, "endpoint": endpoint, **more}
            asked = tmp_path / f"{endpoint}.json"
            asked.write_text(json.dumps({**workload, "input_tokens": TOKENS, "inputs": INPUTS}))
            before = [counted(url, name) for name in ("prompt_tokens_total", "request_success_total")]

            load = [TOKENPEAK, "load", url, "--workload", str(asked), "--format", "json"]
            amount = ["--concurrency", "4", "--requests", str(REQUESTS)]
            done = subprocess.run([*load, *amount], capture_output=True, text=True, check=False)
            assert done.stdout, done.stderr
            run = json.loads(done.stdout)
            tokens, sequences = (
                counted(url, name) - earlier
                for name, earlier in zip(("prompt_tokens_total", "request_success_total"), before, strict=True)
            )

            assert (REQUESTS, {}) == (run["summary"]["requests_ok"], run["summary"]["failures"])
            assert tokens == run["summary"]["input_tokens"]
            assert REQUESTS * INPUTS == sequences
            own = 0 if not more else QUERY
            # A cross-encoder's template has three tokens of its own in each pair.
            assert REQUESTS * INPUTS * (TOKENS + own + (3 if more else 0)) == tokens
            assert [0, 0, 0] == [run["summary"][name]["n"] for name in ("ttft_s", "tpot_s", "itl_s")]
            assert run["summary"]["output_tokens"] is None


@contextmanager
def checkout(root: Path, model: Path) -> Iterator[dict[str, str]]:
    """The environment of a checkout of its own, whose cpu inventory serves this model."""
    production, engine = free_port(), free_port()
    for name in ("playbooks", "notebooks"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.ROOT / "site", root / "site", ignore=shutil.ignore_patterns("build"))
    shutil.copytree(paths.INVENTORIES / "cpu", root / "inventory" / "cpu")
    variables = root / "inventory" / "cpu" / "group_vars" / "all.yml"
    text = variables.read_text().replace("18000", str(production)).replace("8099", str(engine))
    text = text.replace("{name: small, served_name: small}", f"{{name: {model.name}, served_name: {model.name}}}")
    variables.write_text(text.replace('"{{ tokenpeak_local_data }}/models/small"', str(model)))
    (root / "analysis" / "sweeps").mkdir(parents=True)
    state = root / "state"
    environment = {**os.environ, "TOKENPEAK_HOME": str(root), "TOKENPEAK_STATE": str(state)}
    try:
        yield environment
    finally:
        subprocess.run([TOKENPEAK, "restore", "--inventory", "cpu"], env=environment, check=False, timeout=300)
        for process in state.glob("nodes/*/production.json"):
            os.killpg(json.loads(process.read_text())["pid"], signal.SIGKILL)


SWEEP = """
axes:
  max_num_seqs: [2, 64]
fixed: {{name: eager, flags: {{enforce_eager: true}}}}
workloads:
  - workload: {{kind: pooling, name: texts, endpoint: {endpoint}, input_tokens: 48, inputs: 6{more}}}
    levels:
      - {{concurrency: 4, requests: 80, warmup_requests: 8}}
      - {{rate_per_s: 4, requests: 40}}
slo: {{latency_p95_ms: 20000}}
objective: {{also: [latency_s_p95]}}
search: {{baseline: [], anchor_every: null, finalists: 0}}
restore: per_sweep
deadlines: {{engine_ready_s: 2400, run_s: 1800}}
"""


@pytest.mark.parametrize(("name", "endpoint", "more"), [("embedder", "embeddings", ""), ("reranker", "rerank", QUERY)])
def test_sweep_from_command_to_page(models: Path, tmp_path: Path, name: str, endpoint: str, more: int | str) -> None:
    """Both configs are launched, measured by texts and their tokens, ranked, and shown without anything generated."""
    with checkout(tmp_path, models / name) as environment:
        query = f", query_tokens: {more}" if more else ""
        (tmp_path / "analysis" / "sweeps" / "own.yml").write_text(SWEEP.format(endpoint=endpoint, more=query))
        done = subprocess.run(
            [TOKENPEAK, "sweep", "--inventory", "cpu", "--sweep", "own"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    assert 0 == done.returncode, done.stdout
    (archive,) = (path.parent for path in (tmp_path / "results").glob("*/sweep.json"))
    trials = [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("*.json"))]

    assert {"ok"} == {trial["status"] for trial in trials}, done.stdout
    assert 2 == len({trial["config"]["config_id"] for trial in trials})
    each = 6 * (48 + (int(more) + 3 if more else 0))
    for trial in trials:
        counted_by_engine = [value for value in trial["series"]["columns"]["prompt_tokens"] if value is not None]
        # Warm-up and both runs; before them the node asked once whether it serves.
        assert (88 + 40) * each == pytest.approx(max(counted_by_engine), abs=20)
        assert [80 * each, 40 * each] == [run["summary"]["input_tokens"] for run in trial["runs"]]
        assert {None} == {run["summary"]["output_tok_per_s"] for run in trial["runs"]}
    assert re.search(r"^   1 +[\d.,]+ tok/s ", done.stdout, re.MULTILINE), done.stdout
    pages = [path.read_text() for path in (tmp_path / "site" / "build").rglob("*.html")]
    shown = [page for page in pages if archive.name in page and "Input throughput" in page]
    assert shown
    assert any("texts/s" in page for page in shown)
