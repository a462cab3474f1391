"""One sweep as a report reads it: its frames, what it set out to do, and the words that pages use for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from string import ascii_letters, digits

import polars as pl

from tokenpeak.errors import ArchiveError
from tokenpeak.metrics import BY_NAME, Metric, metric_of, title_of
from tokenpeak.plan.baseline import DEFAULTS
from tokenpeak.ranking.candidates import latency_columns
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.records import EndRecord, NodeFacts, Plan, SweepRecord
from tokenpeak.report.blocks.digits import counted
from tokenpeak.spec.parameters import UNITS, Parameters, choices, values
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.frames import Frames

AS_IT_WAS = Parameters()
MEDIAN = "the median of the configs tried"
LAUNCH = (pl.int_range(pl.len()) + 1).over("hardware", "config_id")
"""Which launch of its config on its kind of hardware each of a sweep's trials is, from 1, in the order they started."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Baseline of gains: a config of the sweep, or the median where it has none."""

    config_id: str | None
    words: str
    """The config's name, as in labels and headings."""
    value: float

    @property
    def phrase(self) -> str:
        """As sentences name it: what an engine does without flags is the engine's defaults."""
        return "the engine's defaults" if self.config_id is not None and self.words == DEFAULTS else self.words


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepView:
    """One sweep: its frames, its record and its spec. Equal to itself only, so that what follows from it is kept."""

    origin: Path | None
    """The archive's folder; None: it was read from Postgres."""
    record: SweepRecord
    end: EndRecord | None
    spec: SweepSpec
    frames: Frames
    malformed: tuple[str, ...] = ()
    asked: Parameters = AS_IT_WAS
    """What is asked otherwise than the sweep's spec did; `spec` and `frames` are by it."""

    @property
    def path(self) -> Path:
        """The archive's folder; ArchiveError where there is none."""
        if self.origin is None:
            raise ArchiveError(
                f"Sweep {self.sweep_id} was read from Postgres, which holds no claims, engine logs or records of "
                "trials. Give the archive itself."
            )
        return self.origin

    @property
    def parameters(self) -> pl.DataFrame:
        """A row per parameter: its value here, its unit, what it may be, and who says so.

        >>> sweep.parameters.filter(parameter="objective")["value"].item()
        'output_tok_per_s'
        """
        now, allowed, given = values(self.spec), choices(self.spec, self.hardware), self.asked.given()
        if self.asked.hardware:
            now["hardware"] = self.asked.hardware
        rows = [
            (name, now[name], unit, allowed.get(name, ""), "you" if name in given else "the sweep")
            for name, unit in UNITS.items()
        ]
        schema = ("parameter", "value", "unit", "may be", "said by")
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def sweep_id(self) -> str:
        """The sweep's id, which is also its folder in the site."""
        return self.record.sweep_id

    @property
    def trials(self) -> pl.DataFrame:
        """A row per trial.

        >>> sweep.trials.group_by("axis_max_num_seqs").len().sort("len", "axis_max_num_seqs").rows()
        [('16', 6), ('64', 6)]
        """
        return self.frames.trials

    @property
    def runs(self) -> pl.DataFrame:
        """A row per run, with `label`, the config in a few words, and `slo_confidence`, that its SLO is kept.

        >>> waits = sweep.runs.group_by("level_label").agg(pl.col("ttft_s_p99").median().round(2))
        >>> waits.sort("level_label").rows()[:2]
        [('concurrency=32', 1.9), ('rate=16/s', 3.44)]
        """
        return self.frames.runs

    @property
    def requests(self) -> pl.LazyFrame:
        """A row per request, read when collected.

        >>> long = sweep.requests.filter(pl.col("input_tokens") > 1000, pl.col("phase") == "measured")
        >>> long.select(pl.len(), pl.col("ttft_s").quantile(0.99, "linear").round(2)).collect().row(0)
        (407, 5.6)
        """
        return self.frames.requests

    @property
    def series(self) -> pl.DataFrame:
        """A row per sample of each trial's series.

        >>> sweep.series.filter(quantity="gpu0_power_w")["value"].drop_nulls().len()
        216
        """
        return self.frames.series

    @property
    def hardware(self) -> tuple[str, ...]:
        """The kinds of hardware that trials ran on, else those planned for.

        >>> sweep.hardware
        ('1x NVIDIA L4',)
        """
        seen = self.trials["hardware"].unique(maintain_order=True).to_list() if self.trials.height else []
        return tuple(seen) or tuple(plan.hardware for plan in self.record.plans)

    def where(self, hardware: str) -> str:
        """The hardware as the end of a title, where the sweep has several kinds."""
        return f" on {hardware}" if len(self.hardware) > 1 else ""

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The sweep's axes and the names of their alternatives, in the spec's order.

        Of an axis of which the highest value was sought, those that were launched: no more were meant to be.

        >>> sweep.axes
        {'max_num_seqs': ('16', '64'), 'max_num_batched_tokens': ('2048', '8192')}
        """
        names = {axis: tuple(choice.name for choice in choices) for axis, choices in self.spec.axes.items()}
        if (sought := self.spec.highest) is not None:
            column = f"axis_{sought}"
            tried = set(self.trials[column].to_list()) if column in self.trials.columns else set()
            names[sought] = tuple(name for name in names[sought] if name in tried)
        return names

    @property
    def metric(self) -> Metric:
        """The objective's metric."""
        found = metric_of(self.spec.objective.metric)
        metric = found[0] if found else BY_NAME["output_tok_per_s"]
        return replace(metric, unit=metric.unit.replace("currency", self.spec.energy.currency))

    @property
    def metric_title(self) -> str:
        """The objective with its percentile.

        >>> sweep.metric_title
        'Output throughput'
        """
        return title_of(self.spec.objective.metric)

    @property
    def higher_is_better(self) -> bool:
        """Which way the objective is better."""
        return objective_direction(self.spec) != "lower"

    @property
    def objective_place(self) -> str:
        """The run that the objective is read from, in words."""
        workload, level = self.spec.objective_run()
        several = len(self.spec.workloads) > 1
        words = "a load that is not known" if level == "load-unknown" else level
        return f"{workload}, {words}" if several else words

    @property
    def objective_at(self) -> str:
        """Under what the objective was read; a highest rate is of a workload, not of one of its levels."""
        workload, _ = self.spec.objective_run()
        return f"under {workload}" if self.spec.objective.is_rate else f"at {self.objective_place}"

    @property
    def latency_columns(self) -> tuple[str, str]:
        """Those of `ranking.candidates.latency_columns`: TTFT and TPOT, or the latency of a pooling model."""
        return latency_columns(self.spec)

    @property
    def slo_words(self) -> str:
        """The SLO in words; empty when none is given.

        >>> sweep.slo_words
        'TTFT p95 ≤ 2000 ms, TPOT p95 ≤ 100 ms'
        """
        return limits_words(self.spec.slo)

    @property
    def model_name(self) -> str:
        """The model served, or each of them.

        >>> sweep.model_name
        'meta-llama/Llama-3.1-8B-Instruct'
        """
        names = {planned.config.model.name for plan in self.record.plans for planned in plan.feasible}
        return ", ".join(sorted(names)) or (self.spec.model.name if self.spec.model else "unknown")

    def plan_for(self, hardware: str) -> Plan | None:
        """The plan made for a kind of hardware."""
        return next((plan for plan in self.record.plans if plan.hardware == hardware), None)

    def nodes_of(self, hardware: str) -> tuple[NodeFacts, ...]:
        """The nodes of a kind of hardware."""
        return tuple(node for node in self.record.nodes if self.record.hardware_of(node) == hardware)

    def gpus_of(self, hardware: str) -> int:
        """GPUs of one node of this kind."""
        nodes = self.nodes_of(hardware)
        return len(nodes[0].gpus) if nodes else 0

    def gpus_used(self, hardware: str) -> dict[str, int]:
        """How many of the node's GPUs each config's engine takes; all of them where its flags are not known.

        >>> set(sweep.gpus_used(sweep.hardware[0]).values())
        {1}
        """
        plan = self.plan_for(hardware)
        configs = [planned.config for planned in plan.feasible] if plan is not None else []
        return {config.config_id: self.record.gpus_used(config, hardware) or 0 for config in configs}

    def differ_in_gpus(self, hardware: str) -> bool:
        """Whether the configs that were launched take different numbers of GPUs, so that a GPU's share says more."""
        launched = set(self.trials.filter(pl.col("hardware") == hardware)["config_id"].to_list())
        used = self.gpus_used(hardware)
        return len({used[each] for each in launched if each in used}) > 1

    def objective_runs(self) -> pl.DataFrame:
        """The rows of `runs` that configs are compared by, invalid ones included; those of holdout runs are not.

        >>> sweep.objective_runs()["level_label"].unique().to_list()
        ['concurrency=32']
        """
        workload, level = self.spec.objective_run()
        return self.same_requests().filter(pl.col("workload_name") == workload, pl.col("level_label") == level)

    def held_runs(self) -> pl.DataFrame:
        """For each trial of a sweep for rates the run at its sustainable rate, else the objective's.

        >>> sweep.held_runs().drop_nulls("rate_per_s").group_by("rate_per_s").len().sort("rate_per_s").rows()
        [(4.0, 6), (8.0, 3), (16.0, 3)]
        """
        workload, _ = self.spec.objective_run()
        runs = self.same_requests().filter(pl.col("workload_name") == workload)
        breaks = pl.col("rate_per_s").filter(~pl.col("rate_held")).min().over("trial_id")
        held = runs.filter(pl.col("rate_held"), breaks.is_null() | (pl.col("rate_per_s") < breaks))
        searched = runs.filter(pl.col("max_rate_ended").is_not_null())
        # A closed loop has no rate: it stands only for a trial without one that held.
        held = held.sort("rate_per_s", descending=True, nulls_last=True, maintain_order=True)
        found = pl.concat([searched, held]).unique("trial_id", keep="first", maintain_order=True)
        return pl.concat([found, self.objective_runs().join(found, on="trial_id", how="anti", maintain_order="left")])

    def same_requests(self) -> pl.DataFrame:
        """The rows of `runs` without those of holdout runs, by which configs are not compared.

        >>> sweep.same_requests().height
        48
        """
        apart = self.trials.filter("holdout")
        return self.runs.join(apart, on="trial_id", how="anti", maintain_order="left")

    def facts(self, n: str = "") -> tuple[tuple[str, str], ...]:
        """The strip under a page's title."""
        pairs = [
            ("Sweep", self.sweep_id),
            ("Date", self.date_words),
            ("Hardware", "; ".join(self.hardware)),
            ("Model", self.model_name),
            ("Engine", self.engines()),
            ("Workload", "; ".join(f"{plan.workload.name} ({plan.workload.kind})" for plan in self.spec.workloads)),
        ]
        if self.axes:
            pairs.append(("Config names", " / ".join(self.axes)))
        if self.slo_words:
            pairs.append(("SLO", self.slo_words))
        if asked := self.asked.given():
            pairs.append(("Changed for this report", ", ".join(f"{name} {value}" for name, value in asked.items())))
        counts = f"{counted(self.trials.height, 'trial')}, {counted(self.runs.height, 'run')}"
        pairs.append(("Measured", n or counts))
        return tuple(pairs)

    def engines(self, hardware: str | None = None) -> str:
        """The engines that ran, as they reported themselves; where none did, those of the configs, else of the nodes.

        Of one kind of hardware, or of all.
        """
        ran = self.trials.filter(pl.col("engine_version").is_not_null(), pl.col("status") == "ok")
        ran = ran if hardware is None else ran.filter(pl.col("hardware") == hardware)
        if ran.height:
            return ", ".join(map(engine_words, ran["engine_version"].unique().sort()))
        seen = sorted({node.engine_version for node in self.record.nodes if node.engine_version})
        named = {planned.config.engine_version for plan in self.record.plans for planned in plan.feasible}
        known = sorted(version for version in named if version) or seen
        others = ["others unknown"] if known and None in named and not seen else []
        return ", ".join([*map(engine_words, known), *others]) or "unknown"

    @property
    def launches_known(self) -> bool:
        """Whether the archive says how often a config was launched; a published table need not say it."""
        imported = self.record.imported
        return imported is None or imported.format != "table" or "replicate" in imported.mapping

    def lone_words(self, words: str) -> str:
        """These words, which say that each config was launched once, or that its launches are not known."""
        return words if self.launches_known else "one figure a config, launches unknown"

    @property
    def date_words(self) -> str:
        """When it was measured; an import's source may not say."""
        if self.record.imported:
            return f"{self.record.imported.measured or 'date unknown'}, imported {self.record.started_at:%Y-%m-%d}"
        return f"{self.record.started_at:%Y-%m-%d %H:%M} UTC"

    def marks(self) -> tuple[str, ...]:
        """Marks of every number of this sweep: simulated, estimated energy, interrupted.

        >>> sweep.marks()
        ('simulated', 'energy estimated')
        """
        found = []
        if self.record.simulated:
            found.append("simulated")
        if self.record.imported:
            found.append("imported")
        if self.runs.height and (self.runs["energy_source"] == "estimated_tdp").any():
            found.append("energy estimated")
        if self.end is None or self.end.status == "interrupted":
            found.append("interrupted" if self.end else "unfinished")
        return tuple(found)


def limits_words(slo: Slo) -> str:
    """Limits in words; empty when none is given."""
    return ", ".join(
        f"{metric_word(name)} {percentile} ≤ {limit * 1000:g} ms" for name, percentile, limit in slo.limits()
    )


def engine_words(version: str | None) -> str:
    """An engine by its version; an import may name one that is not vLLM, or none."""
    if version is None:
        return "unknown"
    return f"vLLM {version}" if version[:1].isdigit() else version


def metric_word(name: str) -> str:
    """A metric's short name as SLOs write it: ttft_s is TTFT."""
    stem = name.removesuffix("_s")
    return stem.upper() if stem in ("ttft", "ttfat", "tpot", "itl") else stem


def latency_words(column: str) -> str:
    """A latency's column as a tile or a table calls it: ttft_s_p95 is TTFT p95."""
    name, percentile = column.rsplit("_", 1)
    return f"{metric_word(name).replace('latency', 'Latency')} {percentile}"


LONG = 24
"""Most letters of an alternative that a label or an axis gives in full."""


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Short name of each alternative of an axis in labels: itself, or of a long one what sets it apart.

    >>> short_names(['{"mode":"FULL_AND_PIECEWISE","level":3}', '{"mode":"PIECEWISE"}'])
    {'{"mode":"FULL_AND_PIECEWISE","level":3}': '…FULL_AND_PIECEWISE","l…', '{"mode":"PIECEWISE"}': '…PIECEWISE"}'}
    """
    if all(len(name) <= LONG for name in names):
        return {name: name for name in names}
    first, *others = names
    alike = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(first, *others, strict=False)))
    shared = first[:alike].rstrip(ascii_letters + digits + "_") if others else ""
    apart = [f"…{name.removeprefix(shared)}" if shared else name for name in names]
    cut = [name if len(name) <= LONG else f"{name[: LONG - 1]}…" for name in apart]
    short = [word if cut.count(word) == 1 else f"no. {place}" for place, word in enumerate(cut, 1)]
    return dict(zip(names, short, strict=True))


def config_label(choices: Mapping[str, str | None], name: str) -> str:
    """A config in a few words: its alternatives in the order of the axes, or its name when it is outside the grid."""
    known = [value for value in choices.values() if value is not None]
    return " / ".join(known) if known else name
