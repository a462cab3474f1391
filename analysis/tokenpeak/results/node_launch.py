"""Node launch: what one launch of the screening's config shows of its node.

Speed is output tokens per second of a closed loop, at a rate the inverse of the mean TPOT, and of a search for the
highest rate what saturates the engine: always higher is better.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.records import BY_THE_ENGINE, RunRecord, Series, TrialRecord
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import ClosedLoad

THROTTLED = "clock_throttled"
"""Code of the reason against a run whose board was held back: what a screening looks for."""
LEAST_WINDOWS = 8
"""Of a second each; in fewer a run's speed has no beginning and end."""


@dataclass(frozen=True, kw_only=True)
class NodeLaunch:
    """What one launch of the screening's config showed of its node. None: not measured."""

    node: str
    speed: float | None
    failure: str = ""
    """Why there is no speed."""
    fall: float | None = None
    """Logarithm of the speed at the run's end ÷ at its beginning."""
    clock_mhz: float | None = None
    """Mean over the boards and the run."""
    power_w: float | None = None
    """Mean over the run, of all boards."""
    temperature_c: float | None = None
    """The highest of any board."""
    slowed: float | None = None
    """Share of the samples in which the driver held back the board that it slowed most."""


def screened_run(trial: TrialRecord, spec: SweepSpec) -> RunRecord | None:
    """The objective's run, whatever its verdict; None where the trial did not come to it."""
    return next((run for run in trial.runs if (run.workload.name, run.level_label) == spec.objective_run()), None)


def launch_of(trial: TrialRecord, spec: SweepSpec) -> NodeLaunch:
    """What a trial shows of its node."""
    run = screened_run(trial, spec)
    if trial.status != "ok" or run is None:
        cause = trial.failure.cause if trial.failure is not None else "no run"
        return NodeLaunch(node=trial.node, speed=None, failure=cause)
    start, end = run.window_s or (0.0, trial.duration_s or math.inf)
    busy = {name: _within(trial.series, name, start, end) for name in trial.series.columns}

    def of_boards(quantity: str) -> list[float]:
        return [fmean(values) for name, values in busy.items() if re.fullmatch(rf"gpu\d+_{quantity}", name) and values]

    hottest = [max(values) for name, values in busy.items() if re.fullmatch(r"gpu\d+_temperature_c", name) and values]
    clocks, powers, slowed = of_boards("sm_clock_mhz"), of_boards("power_w"), of_boards("slowed")
    # A board that is too hot makes a run invalid, and is what is looked for.
    against = [reason for reason in run.verdict.reasons if reason.code not in BY_THE_ENGINE | {THROTTLED}]
    speed = speed_of(run) if not against else None
    return NodeLaunch(
        node=trial.node,
        speed=speed,
        failure="" if speed is not None else next((reason.text for reason in against), "no speed was measured"),
        fall=fall_of(run.summary.windowed_output_tok_per_s) if isinstance(run.level, ClosedLoad) else None,
        clock_mhz=fmean(clocks) if clocks else None,
        power_w=sum(powers) if powers else None,
        temperature_c=max(hottest, default=None),
        slowed=max(slowed, default=None),
    )


def speed_of(run: RunRecord) -> float | None:
    """The run's speed, higher is better; None where it was not measured."""
    if run.max_rate is not None:
        return run.max_rate.saturation_per_s or run.max_rate.rate_per_s
    if isinstance(run.level, ClosedLoad):
        return run.summary.output_tok_per_s or None
    mean = run.summary.tpot_s.mean
    return 1 / mean if mean else None


def speed_metric(run: RunRecord) -> str:
    """The metric that the run's speed is read from; of TPOT it is the inverse."""
    if run.max_rate is not None:
        return "max_rate_per_s" if run.max_rate.saturation_per_s is None else "saturation_per_s"
    return "output_tok_per_s" if isinstance(run.level, ClosedLoad) else "tpot_s"


def fall_of(windows: Sequence[float]) -> float | None:
    """Logarithm of the speed in the last third of a run ÷ in its first; None for a short run.

    The first and the last tenth are left out, in which a load begins and ends.
    """
    edge = max(1, len(windows) // 10)
    inner = windows[edge : len(windows) - edge]
    third = len(inner) // 3
    if len(windows) < LEAST_WINDOWS or not third:
        return None
    early, late = fmean(inner[:third]), fmean(inner[-third:])
    return math.log(late / early) if early > 0 and late > 0 else None


def _within(series: Series, name: str, start_s: float, end_s: float) -> list[float]:
    column = series.columns[name]
    return [value for t, value in zip(series.t_s, column, strict=False) if start_s <= t <= end_s and value is not None]
