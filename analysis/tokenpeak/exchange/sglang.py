"""SGLang's bench_serving: results as it appends them (JSON lines), plain or with details, and the block that it prints.

It comes from the same script as `vllm bench serve`, and differs in the names of latency and total throughput.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpeak.exchange import vllm_bench
from tokenpeak.exchange.foreign import ForeignRun, JsonFormat
from tokenpeak.exchange.reading import Fields

MARKS = ("total_output_tokens_retokenized", "mean_e2e_latency_ms")
"""Keys of its results that `vllm bench serve` does not have; old releases wrote the second without the first."""
ENGINE = "sglang"
"""Backends that begin so are SGLang itself; it measures others too."""
PRINTED_MARK = "E2E Latency"
THEIRS = {"total_throughput": "total_token_throughput", "input_throughput": "input_token_throughput"}
"""Its keys → those of `vllm bench serve`."""
IGNORED = (
    "sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio", "dataset_name", "concurrency",
    "total_output_tokens_retokenized", "output_throughput_retokenized", "total_throughput_retokenized",
)  # fmt: skip
DIFFERENCES = (
    vllm_bench.SENT_NOT_DUE,
    "SGLang counts output tokens as the server reports them; its retokenized counts are left out.",
)
MAPPING = {ours: theirs for theirs, ours in vllm_bench.FIGURES.items() if not theirs.endswith(":")} | {
    "total_tok_per_s": "total_throughput",
    "latency_s": "e2e_latency_ms",
}


def looks_like(raw: object) -> bool:
    """The object, or the first of several, is such a result."""
    first = raw[0] if isinstance(raw, list) and raw else raw
    return vllm_bench.looks_like(first) and isinstance(first, Mapping) and any(key in first for key in MARKS)


def read_sglang(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The runs of a result file, and its keys that have no place."""
    runs, unread = [], []
    for fields, raw in vllm_bench.read_results(path):
        renamed = Fields({_key(key): value for key, value in raw.items()}, path, fields.place)
        renamed.ignore(IGNORED)
        known = {"engine_version": ENGINE} if str(raw.get("backend", "")).startswith(ENGINE) else {}
        if isinstance(model := raw.get("model_id") or raw.get("model"), str):
            known["model"] = model[:200]
            renamed.ignore(["model"])
        runs.append(vllm_bench.run_of(renamed, **known))
        unread += renamed.unread()
    return runs, unread


def _key(key: Any) -> str:
    return THEIRS.get(key, str(key).replace("_e2e_latency_ms", "_e2el_ms"))


FORMAT = JsonFormat(
    name="sglang",
    looks_like=looks_like,
    tool_of=lambda _: "SGLang",
    read=lambda path: (*read_sglang(path), []),
    differences=DIFFERENCES,
    mapping=MAPPING,
)
