"""Foreign run: a run as another tool reports it. None: its file does not say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak.records import Distribution, Energy, Imported, Reason, RunSummary, StartupFacts
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ClosedLoad, ExternalLoad, ExternalWorkload, OpenLoad

UNKNOWN_MODEL = "unknown"
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

    name: str = "node"
    gpu: str | None = None
    count: int = 1
    power_limit_w: float | None = None
    cpu: str | None = None
    cpu_cores: int | None = None
    engine_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """One run of one config on one node. Runs of equal node, config and replicate are one trial."""

    node: str = "node"
    config: str = "as-run"
    model: str = UNKNOWN_MODEL
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
    requests: pl.DataFrame | None = None
    """Columns of records.REQUEST_COLUMNS, run_index left to the assembly."""
    reasons: tuple[Reason, ...] = (NOT_JUDGED,)


@dataclass(frozen=True, kw_only=True)
class Import:
    """What a source gave: its runs, its nodes, and where everything is from."""

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
    study: str | None = None


NOTHING = Distribution(n=None)


def summary(**known: object) -> RunSummary:
    """A summary of which only `known` is known."""
    fields: dict[str, object] = {
        "duration_s": None,
        "requests_sent": None,
        "requests_ok": None,
        "requests_failed": None,
        "input_tokens": None,
        "output_tokens": None,
        "request_output_tok_per_s": NOTHING,
        "ttft_s": NOTHING,
        "tpot_s": NOTHING,
        "itl_s": NOTHING,
        "latency_s": NOTHING,
    }
    return RunSummary.model_validate(fields | known)


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """A tool's JSON file: how it is recognized and read. `read` gives runs, keys that it did not read, and nodes."""

    name: str
    looks_like: Callable[[object], bool]
    tool_of: Callable[[Any], str]
    read: Callable[[Path], tuple[list[ForeignRun], list[str], list[ForeignNode]]]
    differences: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
