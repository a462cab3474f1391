"""Foreign run: a run as another tool reports it. None: its file does not say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import ConfigDict, Field

from tokenpeak.errors import suggestion
from tokenpeak.exchange.reading import word
from tokenpeak.metrics import METRICS, STATISTICS
from tokenpeak.records import Energy, Imported, Reason, RunSummary, StartupFacts
from tokenpeak.spec.load import ClosedLoad, ExternalLoad, OpenLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ExternalWorkload

UNKNOWN_WORKLOAD = ExternalWorkload(name="imported")
UNKNOWN_LOAD = ExternalLoad(external=True)
UNKNOWN_START = StartupFacts()
NOT_JUDGED = Reason(
    code="imported",
    text="Measured by another tool, which kept nothing by which its client and its engine could be judged.",
)


@dataclass(frozen=True, kw_only=True)
class ForeignNode:
    """A machine as far as a source describes it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str = "node"
    gpu: str | None = None
    count: Annotated[int, Field(ge=1, le=4096)] = 1
    power_limit_w: float | None = None
    interconnect: str | None = None
    cpu_cores: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory_bytes: Annotated[int, Field(ge=1, lt=1 << 53)] | None = None
    engine_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """One run of one config on one node. Runs of equal node, config and replicate are one trial."""

    node: str = "node"
    config: str = "as-run"
    model: str = "unknown"
    flags: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    engine_version: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    replicate: int | None = None
    """None: counted in the order of the files."""
    workload: ExternalWorkload = UNKNOWN_WORKLOAD
    level: ExternalLoad | ClosedLoad | OpenLoad = UNKNOWN_LOAD
    slo: Slo | None = None
    started_at: datetime | None = None
    summary: RunSummary
    slo_met: bool | None = None
    energy: Energy | None = None
    startup: StartupFacts = UNKNOWN_START
    stated_quality: str | None = None
    requests: pl.DataFrame | None = None
    """Columns of records.REQUEST_COLUMNS, run_index left to the assembly."""
    reasons: tuple[Reason, ...] = (NOT_JUDGED,)


@dataclass(frozen=True, kw_only=True)
class Import:
    """All of a source: its runs, its nodes, and where everything is from."""

    name: str
    description: str = ""
    runs: tuple[ForeignRun, ...]
    nodes: tuple[ForeignNode, ...]
    imported: Imported
    imported_at: datetime | None = None
    """None: now."""
    theoretical: int | None = None
    """Configs that the source says it tried, where it does not list them all."""
    objective: Mapping[str, str] = field(default_factory=dict)
    slo: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """A tool's JSON file: how it is recognized and read. `read` gives runs, keys that it did not read, and nodes."""

    name: str
    looks_like: Callable[[object], bool]
    tool_of: Callable[[Any], str]
    read: Callable[[Path], tuple[list[ForeignRun], list[str], list[ForeignNode]]]
    differences: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)


COUNTS = ("requests_sent", "requests_ok", "requests_failed", "input_tokens", "output_tokens")
SCALARS = (
    "duration_s",
    "request_per_s",
    "output_tok_per_s",
    "input_tok_per_s",
    "total_tok_per_s",
    "peak_output_tok_per_s",
    "goodput_request_per_s",
)
DISTRIBUTIONS = tuple(metric.name for metric in METRICS if metric.distribution)
ENERGY = ("power_w", "energy_j", "energy_j_per_output_tok")
STARTUP = ("kv_cache_tokens", "kv_cache_bytes", "weights_bytes", "max_concurrency")
TARGETS: tuple[str, ...] = (
    *COUNTS,
    *SCALARS,
    *(f"{name}_{statistic}" for name in DISTRIBUTIONS for statistic in ("n", *STATISTICS)),
    *ENERGY,
    *(f"startup_{name}" for name in STARTUP),
)
"""Every figure of a run that a mapping may fill."""


STATISTIC_OF = {"mean": "mean", "median": "p50", "std": "std"} | {name: name for name in STATISTICS if name[0] == "p"}
"""Other tools' words for statistics → ours; the median has two."""


def unknown_target(name: str) -> str | None:
    """The mistake in a figure's name; None when there is none."""
    return None if name in TARGETS else f"no figure is called {name!r}. {suggestion(name, TARGETS)}"


def summary_of(values: Mapping[str, float]) -> RunSummary:
    """The summary of these figures; what is not among them stays unknown."""
    known: dict[str, object] = {name: int(values[name]) if name in values else None for name in COUNTS}
    known |= {name: values.get(name) for name in SCALARS}
    for name in DISTRIBUTIONS:
        parts: dict[str, float | int | None] = {
            statistic: values[f"{name}_{statistic}"] for statistic in STATISTICS if f"{name}_{statistic}" in values
        }
        count = values.get(f"{name}_n")
        known[name] = {"n": None if count is None else int(count), **parts}
    return RunSummary.model_validate(known)


def mean_lengths(values: Mapping[str, float | None]) -> dict[str, float]:
    """Mean tokens of a request's input and output, as far as their totals are known."""
    ok = values.get("requests_ok") or 0.0
    return {name: total / ok for name in ("input_tokens", "output_tokens") if (total := values.get(name)) and ok}


def workload_of(lengths: Mapping[str, float]) -> ExternalWorkload:
    """The workload of requests of these mean lengths, which name it."""
    shape = "-".join(str(round(length)) for length in lengths.values())
    return ExternalWorkload(name=word(f"bench-{shape}" if shape else "bench"), **lengths)


def with_derived(values: Mapping[str, float]) -> dict[str, float]:
    """The figures with what follows from them: how many requests a latency is of, and the input's throughput."""
    derived = {
        f"{name}_n": values["requests_ok"]
        for name in ("ttft_s", "latency_s")
        if "requests_ok" in values and any(key.startswith(f"{name}_") for key in values)
    }
    if values.get("duration_s") and "input_tokens" in values:
        derived["input_tok_per_s"] = values["input_tokens"] / values["duration_s"]
    return {**values, **derived}


def startup_of(values: Mapping[str, float]) -> StartupFacts:
    """Facts of the engine's start among the figures."""
    facts = {name: values[f"startup_{name}"] for name in STARTUP if f"startup_{name}" in values}
    return StartupFacts.model_validate(
        {name: value if name == "max_concurrency" else int(value) for name, value in facts.items()}
    )


def energy_of(values: Mapping[str, float], source: str) -> Energy | None:
    """The energy of the boards by these figures; None when they hold none."""
    if not any(name in values for name in ENERGY):
        return None
    return Energy.model_validate(
        {"source": source, "boundary": "gpu_boards", **{name: values.get(name) for name in ENERGY}}
    )
