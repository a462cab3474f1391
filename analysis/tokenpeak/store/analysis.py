"""Columns for an analyst: each axis as a value of its own type, and each request's latencies."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from tokenpeak.metrics import BY_NAME
from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, ModelName, SweepRecord
from tokenpeak.results.request_metrics import REQUEST_METRICS
from tokenpeak.store.archive import parse_record
from tokenpeak.store.frames import Frames

VALUE = "value_"
"""Prefix of an axis's name in the column of its values; `axis_` stands before that of the words for them."""
VALUE_MEANING = "The value of axis {}, a number where all are; the engine's default where it is known and none was set"
LATENCIES = {
    name: f"{BY_NAME[name].title}: {BY_NAME[name].formula}; null for a failed request"
    for name in REQUEST_METRICS
    if BY_NAME[name].unit == "s"
}
"""Meaning of each column that `requests` gets here."""
_FLAGS_OF_PLAN = {
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "block_size": "block_size",
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
}
_FLAGS_OF_DEPLOYMENT = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enforce_eager": "eager",
}
Key = tuple[str, str, str]
"""sweep_id, hardware, config_id."""


def for_analysis(frames: Frames) -> Frames:
    """The frames with `value_AXIS` in configs, trials and runs, and the latencies of each request."""
    axes = axes_of(frames)
    records = {
        sweep_id: parse_record(record.encode(), SweepRecord, sweep_id)
        for sweep_id, record in frames.records.select("sweep_id", "record").iter_rows()
    }
    rows = list(frames.configs.iter_rows(named=True))
    keys = ("sweep_id", "hardware", "config_id")
    values: dict[Key, dict[str, object]] = {
        (row["sweep_id"], row["hardware"], row["config_id"]): _values(row, axes, records[row["sweep_id"]])
        for row in rows
    }
    columns = {axis: _typed([value[axis] for value in values.values()]) for axis in axes}
    typed = pl.DataFrame(
        {
            **{name: pl.Series([key[place] for key in values], dtype=pl.String) for place, name in enumerate(keys)},
            **{f"{VALUE}{axis}": column for axis, column in columns.items()},
        }
    )
    changed = {
        name: getattr(frames, name).join(typed, on=keys, how="left", maintain_order="left")
        for name in ("configs", "trials", "runs")
    }
    return replace(frames, **changed, requests=with_latencies(frames.requests, frames.runs))


def axes_of(frames: Frames) -> list[str]:
    """The axes of all sweeps, in the order of their columns."""
    return sorted({axis for spec in frames.specs.values() for axis in spec.axes})


def _values(row: Mapping[str, Any], axes: Iterable[str], record: SweepRecord) -> dict[str, object]:
    """The value of each axis for a config: the flag of its name, else the alternative, else the engine's default."""
    flags, choices = json.loads(row["flags"]), json.loads(row["choices"])
    values = {axis: flags.get(axis, choices.get(axis)) for axis in axes}
    if None not in values.values() or record.imported is not None:
        return values
    known = _defaults(row, flags, record)
    return {axis: known.get(axis) if value is None else value for axis, value in values.items()}


def _defaults(row: Mapping[str, Any], flags: Mapping[str, Any], record: SweepRecord) -> dict[str, object]:
    """The engine's defaults of flags that the config leaves to it, on that hardware; empty where that is not known."""
    node = next((each for each in record.nodes if record.hardware_of(each) == row["hardware"]), None)
    if node is None or record.spec.get("endpoint") is not None:
        return {}
    config = Config(
        config_id=row["config_id"],
        name=row["config_name"],
        model=ModelName(name=row["model_name"], served_name=row["served_name"] or row["model_name"]),
        flags=dict(flags),
        env=json.loads(row["env"]),
        engine_version=row["engine_version"],
    )
    plan = plan_memory(config, node, model_facts(row["model_name"]), row["engine_version"] or node.engine_version)
    if plan is None:
        return {}
    return {flag: getattr(plan, name) for flag, name in _FLAGS_OF_PLAN.items()} | {
        flag: getattr(plan.deployment, name) for flag, name in _FLAGS_OF_DEPLOYMENT.items()
    }


def _typed(values: list[object]) -> pl.Series:
    """The values as whole numbers, numbers or booleans where all of them are; else as text."""
    if all(value is None or isinstance(value, bool) for value in values):
        return pl.Series(values, dtype=pl.Boolean)
    words = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    text = pl.Series(words, dtype=pl.String)
    # The name of an alternative may be a number, too.
    numbers = (text.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((each for each in numbers if each.null_count() == text.null_count()), text)


def with_latencies(requests: pl.LazyFrame, runs: pl.DataFrame) -> pl.LazyFrame:
    """The requests with LATENCIES."""
    keys = ["sweep_id", "trial_id", "run_index"]
    opened = runs.select(*keys, is_open=pl.col("level_kind") == "open").lazy()
    began = pl.when("is_open").then("due_s").otherwise("sent_s")
    ended = pl.col("error").is_null()
    return (
        requests.join(opened, on=keys, how="left", maintain_order="left")
        .with_columns(pl.when(ended).then(REQUEST_METRICS[name](began)).alias(name) for name in LATENCIES)
        .drop("is_open")
    )
