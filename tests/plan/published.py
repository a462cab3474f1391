"""Predictions beside published measurements: the tables of the archives, and what is predicted of each row."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from node_models import known_board, known_model
from tokenpeak import paths
from tokenpeak.predict.demand import Demand
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.prediction import steady_state

TABLES: Mapping[str, Path] = {
    "v100-deepseek-r1-32b": paths.ARCHIVES / "v100-deepseek-r1-32b" / "source" / "ranking.csv",
    "a100x8-llama70b-serving-runs": paths.ARCHIVES / "a100x8-llama70b" / "source" / "serving-runs.csv",
    "gtc-h200-llama70b-fp8": paths.ARCHIVES / "h200-llama70b-fp8" / "source" / "configs.csv",
    "multi-gpu-presets": paths.ARCHIVES / "multi-gpu-presets" / "source" / "presets.csv",
}
"""The published tables, which lie with the archives made of them."""

PUBLISHED_RELEASE = "0.7.3"
"""Of vLLM, in the two publications whose rows are compared here."""

PRESETS: Mapping[str, tuple[str, int]] = {
    "gpu-small": ("Tesla V100-PCIE-16GB", 1),
    "gpu-medium": ("Tesla V100-PCIE-16GB", 2),
    "gpu-large": ("Tesla V100-PCIE-16GB", 4),
    "gpu-xlarge": ("Tesla V100-PCIE-16GB", 8),
    "mi210x1": ("AMD Instinct MI210", 1),
    "mi210x2": ("AMD Instinct MI210", 2),
    "H100X1": ("NVIDIA H100 PCIe", 1),
    "H100X2": ("NVIDIA H100 PCIe", 2),
}
"""The presets of the Apolo multi-GPU report, section 2.1; tensor parallel over all GPUs of a preset."""

PRESETS_PROMPT_TOKENS = 9
"""Its one prompt, "Let's explore some architecture patterns for microservices"."""

PRESETS_CONCURRENCY, PRESETS_REQUESTS = 10, 100

ANSWER_SPREAD = 0.5
"""Coefficient of variation of answers that end where the model ends them; neither publication gives it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One published row. Speeds are output tokens per second of one request while it decodes."""

    published_tok_per_s: float
    predicted_tok_per_s: float
    output_tok_per_s: tuple[float, float]
    """Of all requests together over the whole run: published and predicted."""
    ttft_s: tuple[float, float] | None = None
    """Mean, published and predicted; None where it was not published."""

    @property
    def ratio(self) -> float:
        """Predicted ÷ published."""
        return self.predicted_tok_per_s / self.published_tok_per_s


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of the published table called `name`."""
    with TABLES[name].open(newline="") as file:
        return list(csv.DictReader(file))


def _compare(
    published: float,
    deployment: Deployment,
    utilization: float,
    demand: Demand,
    *,
    output_tok_per_s: float,
    ttft_s: float | None = None,
    chunked: bool = False,
) -> Comparison:
    memory = MemoryPlan(
        deployment=deployment,
        gpu_memory_utilization=utilization,
        kv_cache_memory_bytes=None,
        max_model_len=demand.longest_tokens or deployment.model.max_context,
        chunked_prefill=chunked,
        prefix_caching=False,
    )
    state = steady_state(memory, demand)
    return Comparison(
        published_tok_per_s=published,
        predicted_tok_per_s=1 / state.tpot_s,
        output_tok_per_s=(output_tok_per_s, state.output_tok_per_s),
        ttft_s=None if ttft_s is None else (ttft_s, state.ttft_s),
    )


def _demand(prompt: float, output: float, concurrency: int, requests: int, *, alike: bool) -> Demand:
    return Demand(
        input_tokens=prompt,
        output_tokens=output,
        longest_tokens=round(prompt + output) if alike else None,
        longest_input_tokens=round(prompt) if alike else None,
        requests=requests,
        warmup_requests=0,
        duration_s=None,
        concurrency=concurrency,
        rate_per_s=None,
        output_spread=0.0 if alike else ANSWER_SPREAD,
    )


def presets() -> Iterator[Comparison]:
    """Every row of the multi-GPU report: float16, eager, V0, 10 of 100 requests at a time.

    The mean output length is latency × speed; how long the prompts' contexts could have been does not matter.
    """
    for row in read_rows("multi-gpu-presets"):
        gpu, count = PRESETS[row["preset"]]
        speed = float(row["request_generation_tok_per_s"])
        deployment = Deployment(
            model=known_model(row["model"]),
            gpu=known_board(gpu),
            tensor_parallel=count,
            dtype="float16",
            eager=True,
            v1=False,
            engine_version=PUBLISHED_RELEASE,
            graphs_reserved=False,
            max_num_batched_tokens=max(2048, int(row["max_model_len"])) if int(row["max_model_len"]) <= 32768 else 2048,
        )
        asked = _demand(
            PRESETS_PROMPT_TOKENS,
            speed * float(row["mean_latency_s"]),
            PRESETS_CONCURRENCY,
            PRESETS_REQUESTS,
            alike=False,
        )
        yield _compare(speed, deployment, 0.90, asked, output_tok_per_s=float(row["generation_tok_per_s"]))


def a100x8() -> Iterator[Comparison]:
    """The serving runs of Llama 70B bfloat16 on 8 A100: graphs, V0 0.7.3; speed is 1 ÷ mean TPOT."""
    for row in read_rows("a100x8-llama70b-serving-runs"):
        requests = int(row["successful_requests"])
        batched = int(row["max_num_batched_tokens"] or 2048)
        tensor, pipeline = int(row["tensor_parallel_size"]), int(row["pipeline_parallel_size"])
        deployment = Deployment(
            model=known_model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B"),
            gpu=known_board("NVIDIA A100-SXM4-80GB"),
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            v1=False,
            engine_version=PUBLISHED_RELEASE,
            graphs_reserved=False,
            max_num_batched_tokens=batched,
        )
        prompt = float(row["total_input_tokens"]) / requests
        asked = _demand(
            prompt, float(row["total_generated_tokens"]) / requests, requests, requests, alike=requests == 1
        )
        yield _compare(
            1000 / float(row["mean_tpot_ms"]),
            deployment,
            0.95,
            asked,
            output_tok_per_s=float(row["output_token_throughput_tok_per_s"]),
            ttft_s=float(row["mean_ttft_ms"]) / 1000 if row["mean_ttft_ms"] else None,
            chunked=row["enable_chunked_prefill"] == "True",
        )


def median_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Median of |predicted ÷ published - 1| over pairs of (published, predicted)."""
    return median(abs(predicted / published - 1) for published, predicted in pairs)
