"""Energy of configs by the methodology's formulas: geometric means, intervals by the pooled spread of launches."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from scipy import stats

from judge.raw import Raw, geometric

USUAL_SPREAD, USUAL_WEIGHT = 0.015, 8
"""The spread between launches that is assumed at first, and as how many launches it counts."""


def joules(raw: Raw, hardware: str) -> dict[str, list[float]]:
    """J per output token of each launch, by label."""
    found: dict[str, list[float]] = {}
    for trial, run in raw.runs(hardware):
        energy = run.get("energy") or {}
        if energy.get("energy_j_per_output_tok"):
            found.setdefault(raw.label(trial["config"]), []).append(energy["energy_j_per_output_tok"])
    return found


def is_measured(raw: Raw, hardware: str) -> bool:
    """Whether a sensor stands behind the energies."""
    return any((run.get("energy") or {}).get("source") != "estimated_tdp" for _, run in raw.runs(hardware))


def intervals(launches: Mapping[str, Sequence[float]], *, measured: bool) -> dict[str, tuple[float, float] | None]:
    """The ends of each config's mean, by the pooled spread; None of estimates where no config was launched again."""
    logs = {label: [math.log(each) for each in own] for label, own in launches.items()}
    squares = sum((log - fmean(own)) ** 2 for own in logs.values() for log in own)
    weight = USUAL_WEIGHT if measured else 0
    freedom = sum(len(own) - 1 for own in logs.values()) + weight
    if not freedom:
        return dict.fromkeys(launches)
    variance = (squares + weight * USUAL_SPREAD**2) / freedom
    reach = float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)
    return {
        label: (
            geometric(own) * math.exp(-reach / math.sqrt(len(own))),
            geometric(own) * math.exp(reach / math.sqrt(len(own))),
        )
        for label, own in launches.items()
    }


def tied_with_least(launches: Mapping[str, Sequence[float]], *, measured: bool) -> int:
    """How many configs' intervals reach into that of the thriftiest."""
    ends = intervals(launches, measured=measured)
    first = min(launches, key=lambda label: geometric(launches[label]))
    top = ends[first]
    if top is None:
        return 0
    return sum(1 for label, own in ends.items() if label != first and own is not None and own[0] <= top[1])
