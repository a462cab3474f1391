"""Study stages at rising request rates: baseline → tuned → speculative → routed.

A stage is a kind of config: one sweep can hold several, a study of sweeps all of them. Each is represented by
its config with the highest rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.records import Config
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, answer, code, note, strong, table
from tokenpeak.report.blocks.digits import shared_digits, trimmed
from tokenpeak.report.load import rates
from tokenpeak.report.load.curves import curves
from tokenpeak.report.view import SweepView
from tokenpeak.vllm.renames import speculative_config

STAGES = ("baseline", "tuned", "speculative", "routed")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A stage by its best config: the highest rate within the SLO lies from `holds` to `breaks` (null: not known)."""

    stage: str
    config_id: str
    label: str
    sweep_id: str
    hardware: str
    holds: float | None
    breaks: float | None
    launches: int
    sweep_runs: pl.DataFrame
    """Every run at a rate of the config's sweep on its hardware."""

    @property
    def name(self) -> str:
        """The stage with its config."""
        return f"{self.stage}: {self.label}"

    def runs(self) -> pl.DataFrame:
        """The config's own runs, under the stage's name."""
        return self.sweep_runs.filter(pl.col("config_id") == self.config_id).with_columns(label=pl.lit(self.name))


def stage_of(config: Config, baselines: Sequence[str]) -> str:
    """The study stage of a config; a server that was measured as it is counts as routed."""
    if config.endpoint is not None:
        return "routed"
    if speculative_config(config.flags) is not None:
        return "speculative"
    return "baseline" if config.name in baselines else "tuned"


def reached(views: Sequence[SweepView], workload: str) -> list[Reached]:
    """The stages that these sweeps hold, in order, each with the config of its highest rate."""
    found = [each for view in views for each in _of_sweep(view, workload)]
    best = []
    for stage in STAGES:
        own = [each for each in found if each.stage == stage]
        if own:
            best.append(max(own, key=lambda each: (each.holds or 0.0, each.breaks or math.inf)))
    return best


def _of_sweep(view: SweepView, workload: str) -> list[Reached]:
    found = []
    for plan in view.record.plans:
        stages = {each.config.config_id: stage_of(each.config, view.spec.search.baseline) for each in plan.feasible}
        runs = rates.open_runs(view, plan.hardware, workload)
        searched = {
            row["config_id"]: row
            for row in rates.found_rates(view, plan.hardware, workload)
            .filter(pl.col("rate").is_not_null())
            .group_by("config_id")
            .agg(pl.col("low").min(), pl.col("high").max())
            .iter_rows(named=True)
        }
        for row in rates.highest_rates(runs).iter_rows(named=True):
            own = searched.get(row["config_id"])
            found.append(
                Reached(
                    stage=stages.get(row["config_id"], "tuned"),
                    config_id=row["config_id"],
                    label=row["label"],
                    sweep_id=view.sweep_id,
                    hardware=plan.hardware,
                    holds=own["low"] if own else row["holds"],
                    breaks=own["high"] if own else row["breaks"],
                    launches=row["launches"] or 0,
                    sweep_runs=runs,
                )
            )
    return found


def comparable(view: SweepView, others: Sequence[SweepView], workload: str) -> list[SweepView]:
    """Those of the other sweeps that asked the same workload under the same SLO."""
    asked = _asked(view, workload)
    return [other for other in others if _asked(other, workload) == asked]


def _asked(view: SweepView, workload: str) -> tuple[object, object]:
    return next((plan.workload for plan in view.spec.workloads if plan.workload.name == workload), None), view.spec.slo


def gain(before: Reached, after: Reached) -> tuple[float | None, float | None]:
    """The least and the most that the highest rate can have changed by, as shares; None where an end is not known."""
    least = after.holds / before.breaks - 1 if after.holds and before.breaks else None
    most = after.breaks / before.holds - 1 if after.breaks and before.holds else None
    return least, most


def blocks(view: SweepView, others: Sequence[SweepView], workload: str) -> list[Block]:
    """Highest rate of each stage and its gain over the first; nothing where there is but one stage."""
    alike = comparable(view, others, workload)
    stages = reached([view, *alike], workload)
    if len(stages) < 2 or not view.slo_words:
        return []
    found: list[Block] = [_answer(stages), _table(stages)]
    if left := len(others) - len(alike):
        found.append(note(f"{left} of the study's sweeps asked another workload or SLO and are left out."))
    if len({each.hardware for each in stages}) > 1:
        found.append(note("The stages ran on different hardware, which is part of their difference."))
    runs = pl.concat([each.runs() for each in stages], how="diagonal").with_columns(x=pl.col("rate_per_s"))
    figure = curves(
        view,
        runs,
        "rate",
        [each.name for each in stages],
        {},
        name=f"stages-{slug(workload)}",
        title=f"By stage, {workload}",
        scope="stages",
    )
    return [*found, *([figure] if figure else [])]


def _answer(stages: Sequence[Reached]) -> Sentence:
    """How far the last stage comes, against the first."""
    first, last = stages[0], stages[-1]
    if last.holds is None:
        return answer(f"From {first.stage} to {last.stage}: {last.stage} (", code(last.label), ") held no rate tried.")
    if last.holds == first.holds:
        rate = strong(f"{trimmed(last.holds)} req/s")
        beyond = last.breaks is None
        hidden = "no higher rate could be judged, so a gain" if beyond else "a gain smaller than a step of the rates"
        return answer(f"{first.stage.capitalize()} and {last.stage} both hold ", rate, f"; {hidden} would not show.")
    parts: list[Part] = [f"From {first.stage} to {last.stage}, the highest rate within the SLO goes from "]
    parts += [strong(trimmed(first.holds) if first.holds else "none"), " to ", strong(f"{trimmed(last.holds)} req/s")]
    least, most = gain(first, last)
    if least is not None and least > 0:
        upper = f" and at most {most:+.0%}" if most is not None else ""
        parts.append(f": a gain of at least {least:+.0%}{upper}, by the rates between which each limit lies.")
    else:
        parts.append("; the rates tried are too far apart to separate the two limits.")
    return answer(*parts)


def _table(stages: Sequence[Reached]) -> Block:
    first = stages[0]
    rows = []
    for each in stages:
        least, most = gain(first, each) if each is not first else (None, None)
        rows.append(
            {
                "phase": each.stage,
                "label": each.label,
                "sweep": each.sweep_id,
                "hardware": each.hardware,
                "holds": each.holds,
                "breaks": each.breaks,
                "least": least * 100 if least is not None else None,
                "most": most * 100 if most is not None else None,
                "launches": each.launches,
            }
        )
    digits = shared_digits(pl.Series([rate for each in stages for rate in (each.holds, each.breaks)], dtype=pl.Float64))
    schema = dict.fromkeys(("holds", "breaks", "least", "most"), pl.Float64)
    return table(
        pl.DataFrame(rows, schema_overrides=schema),
        [
            Column(key="phase", title="Stage"),
            Column(key="label", title="Best config", kind="code"),
            Column(key="holds", title="Highest rate within the SLO", unit="req/s", kind="number", digits=digits),
            Column(key="breaks", title="First rate beyond it", unit="req/s", kind="number", digits=digits),
            Column(key="least", title=f"Over {first.stage}, at least", unit="%", kind="number", digits=1, signed=True),
            Column(key="most", title="at most", unit="%", kind="number", digits=1, signed=True),
            Column(key="launches", title="Launches", kind="number"),
            Column(key="hardware", title="Hardware"),
            Column(key="sweep", title="Sweep", kind="code"),
        ],
        name="phases",
        title="Stages compared",
        note="Each limit lies between two rates that were tried, so a gain has a minimum and a maximum.",
    )
