"""The simulated 4x V100 beside the figures published for the real one; the simulation is not tuned to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_engine import StartEngine, engines

from tokenpeak.loadgen.job import LoadJob, run_job
from tokenpeak.records import RunRecord

pytestmark = pytest.mark.e2e

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
PROMPT_TOKENS = 26
"""The published prompt is one sentence whose text is not given; this is the length of such a sentence."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartEngine]:
    """Starts simulated engines."""
    yield from engines(tmp_path)


def run(start: StartEngine, folder: Path, *flags: str) -> RunRecord:
    """32 requests at once, 300 tokens each, as published."""
    engine = start(
        *("--dtype", "float16", "--enforce-eager", "--tensor-parallel-size", "4", "--disable-log-requests", *flags),
        model=MODEL,
        gpu="Tesla V100-PCIE-32GB",
        gpu_count="4",
        version="0.8.5.post1",
        VLLM_USE_V1="0",
    ).wait_ready()
    workload = {"kind": "synthetic", "name": "fixed", "input_tokens": PROMPT_TOKENS, "output_tokens": 300}
    level = {"concurrency": 32, "requests": 32}
    job = LoadJob.model_validate(
        {
            "base_url": engine.url,
            "model": MODEL,
            "output_dir": folder,
            "runs": [{"run_index": 0, "workload": workload, "level": level, "slo": {}}],
        }
    )
    return run_job(job)[0]


def test_published_figures_come_out(start: StartEngine, tmp_path: Path) -> None:
    """The winner's speed of a request, TTFT and p95 latency are within 30%, and the node gives 32 times a request."""
    winner = ("--gpu-memory-utilization", "0.85", "--max-num-seqs", "32", "--max-model-len", "32768")
    other = ("--gpu-memory-utilization", "0.95", "--max-num-seqs", "128", "--max-model-len", "16384")
    first, second = run(start, tmp_path / "winner", *winner), run(start, tmp_path / "other", *other)
    summary = first.summary
    per_request = second.summary.request_output_tok_per_s.mean
    print(f"per request {summary.request_output_tok_per_s.mean:.1f} tok/s (published 21.8)")
    print(f"TTFT {summary.ttft_s.p50:.3f} s (0.393), p95 latency {summary.latency_s.p95:.2f} s (13.78)")
    print(f"node {summary.output_tok_per_s:.0f} tok/s; another config of the plateau {per_request:.1f} per request")

    assert pytest.approx(21.8, rel=0.3) == summary.request_output_tok_per_s.mean
    assert pytest.approx(0.393, rel=0.3) == summary.ttft_s.p50
    assert pytest.approx(13.78, rel=0.3) == summary.latency_s.p95
    assert pytest.approx(32 * 21.8, rel=0.3) == summary.output_tok_per_s
    assert (
        pytest.approx(summary.request_output_tok_per_s.mean, rel=0.02) == second.summary.request_output_tok_per_s.mean
    )
