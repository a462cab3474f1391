"""Evidence of a check: the frames that it reads, and its outcome, on a claim or on every sweep."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import polars as pl

from tokenpeak.errors import FactsError, suggestion
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts
from tokenpeak.spec.sweep import SweepSpec

Row = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One sweep's frames, with the columns of store.tables and one `axis_NAME` for each axis."""

    spec: SweepSpec
    nodes: pl.DataFrame
    configs: pl.DataFrame
    trials: pl.DataFrame
    runs: pl.DataFrame

    @property
    def axes(self) -> tuple[str, ...]:
        """The sweep's axes that the runs have."""
        return tuple(axis for axis in self.spec.axes if f"axis_{axis}" in self.runs.columns)

    @property
    def objective(self) -> str:
        """The column of the objective; throughput where the objective is none of a run."""
        metric = self.spec.objective.metric
        return metric if metric in self.runs.columns else "output_tok_per_s"

    def select(self, where: Mapping[str, object], runs: pl.DataFrame | None = None) -> pl.DataFrame:
        """The runs whose columns are these; FactsError for a column that there is not."""
        frame = self.runs if runs is None else runs
        for column, value in where.items():
            name = column if column in frame.columns else f"axis_{column}"
            if name not in frame.columns:
                raise FactsError(f"Claims name a column {column!r}. {suggestion(column, frame.columns)}")
            wanted = value if isinstance(value, list) else [value]
            text = [str(item).lower() if isinstance(item, bool) else str(item) for item in wanted]
            frame = frame.filter(pl.col(name).cast(pl.String).is_in(text))
        return frame

    def one(self, where: Mapping[str, object]) -> Row | None:
        """The first of these runs; None when there is none."""
        runs = self.select(where)
        return runs.row(0, named=True) if runs.height else None

    def counted(self) -> pl.DataFrame:
        """The runs that are not invalid."""
        return self.runs.filter(pl.col("verdict") != "invalid")

    def objective_runs(self) -> pl.DataFrame:
        """The objective's runs that are not invalid."""
        workload, level = self.spec.objective_run()
        return self.counted().filter(pl.col("workload_name") == workload, pl.col("level_label") == level)

    def memory_plan(self, row: Row) -> MemoryPlan | None:
        """How the run's config uses its node's memory, by the hardware's and the model's facts; None without them."""
        configs = self.configs.filter(pl.col("config_id") == row["config_id"])
        nodes = self.nodes.filter(pl.col("node") == row["node"])
        if configs.is_empty() or nodes.is_empty():
            return None
        config, node = configs.row(0, named=True), nodes.row(0, named=True)
        gpus = tuple(Gpu(**gpu) for gpu in json.loads(node["gpus"]))
        machine = MachineFacts(
            gpus=gpus,
            cpu=node["cpu"],
            cpu_cores=node["cpu_cores"],
            memory_bytes=node["memory_bytes"],
            engine_version=node["engine_version"],
        )
        facts = NodeFacts.of(machine, node=node["node"], source="declared")
        if not gpus:
            return None
        return plan_memory(
            Config(
                config_id=config["config_id"],
                name=config["config_name"],
                model=ModelName(name=config["model_name"], served_name=config["served_name"]),
                flags=json.loads(config["flags"]),
                env=json.loads(config["env"]),
                engine_version=config["engine_version"],
            ),
            facts,
            model_facts(config["model_name"]),
        )

    def gpus_of(self, node: object) -> tuple[str, int]:
        """The device's name and how many of them the node has."""
        nodes = self.nodes.filter(pl.col("node") == node)
        return (str(nodes["gpu_name"][0]), int(nodes["gpu_count"][0])) if nodes.height else ("", 0)


def value(row: Row, column: str) -> float | None:
    """The row's figure; None when it is unknown."""
    number = row.get(column)
    return float(number) if isinstance(number, int | float) else None


def place(row: Row) -> str:
    """Where a figure stands, for a reader: config, load and node."""
    return f"{row['config_name']} at {row['level_label']} on {row['node']}"


Verdict = Literal["supported", "not_supported", "contradicted", "undecided"]

VERDICT_WORDS: dict[Verdict, str] = {
    "supported": "supported",
    "not_supported": "not supported",
    "contradicted": "contradicted",
    "undecided": "undecided",
}


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The verdict on a claim: `computation` a line per step with its numbers, `corrected` the figure that holds."""

    verdict: Verdict
    computation: tuple[str, ...]
    corrected: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A mistake that a guard saw: where, and what, with the numbers that do not go together."""

    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A guard's findings, and in how many places it looked; none looked at says nothing."""

    looked_at: int
    findings: tuple[Finding, ...] = ()


def undecided(*lines: str, corrected: str = "") -> CheckOutcome:
    """The outcome of a claim that the archive does not decide, and why."""
    return CheckOutcome(verdict="undecided", computation=lines, corrected=corrected)


def settled(lines: Sequence[str], *, holds: bool, corrected: str, otherwise: Verdict = "contradicted") -> CheckOutcome:
    """The outcome of a claim that the arithmetic decides, with the figure that holds where it does not."""
    return CheckOutcome(
        verdict="supported" if holds else otherwise, computation=tuple(lines), corrected="" if holds else corrected
    )


Seen = TypeVar("Seen")


def looks(places: Callable[[Seen], Iterator[Finding | None]]) -> Callable[[Seen], Guarded]:
    """The guard that looks at these places: None where nothing is wrong."""

    def guard(seen: Seen) -> Guarded:
        findings = list(places(seen))
        return Guarded(looked_at=len(findings), findings=tuple(each for each in findings if each is not None))

    guard.__doc__ = places.__doc__
    return guard


def figure(value: float | None) -> str:
    """A number for a line of arithmetic: four significant digits, thin thousands."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size == 0:
        return "0"
    text = f"{value:.4g}"
    return f"{value:.2e}" if "e" in text else text


def percent(share: float) -> str:
    """A signed share as a percentage."""
    return f"{share * 100:+.1f}%".replace("-", "−")


def agrees(stated: float, computed: float, within: float) -> bool:
    """Two figures agree within a share of the larger."""
    return abs(stated - computed) <= within * max(abs(stated), abs(computed))
