"""Which request rates a config held, broke, or was not judged at."""

import math

from judge.raw import Raw

BY_THE_ENGINE = {"overloaded", "preemptions", "quality_failed", "quality_unknown"}
"""Reasons that exclude a run from a ranking, but not from the judgement on its rate."""


def states(raw: Raw, hw: str) -> dict[str, dict[float, bool | None]]:
    """By config and rate: whether every launch that could be judged held it; None where none could."""
    found: dict[str, dict[float, bool | None]] = {}
    for trial in raw.trials:
        for run in trial["runs"]:
            rate = run["level"].get("rate_per_s")
            if not rate or trial["hardware"] != hw:
                continue
            codes = {reason["code"] for reason in run["verdict"]["reasons"]}
            judged = run["verdict"]["status"] != "invalid" or codes <= BY_THE_ENGINE
            held = (
                (bool(run["slo_met"]) and "overloaded" not in codes) if judged and run["slo_met"] is not None else None
            )
            if judged and "overloaded" in codes:
                held = False
            own = found.setdefault(raw.label(trial["config"]), {})
            before = own.get(rate)
            own[rate] = before if held is None else held if before is None else before and held
    return found


def ends(rates: dict[float, bool | None]) -> tuple[float, float]:
    """The sustainable rate, and the first that was not sustained; 0 and infinity where there is none."""
    breaks = min((rate for rate, held in rates.items() if held is False), default=math.inf)
    return max((rate for rate, held in rates.items() if held and rate < breaks), default=0.0), breaks


def unjudged(rates: dict[float, bool | None]) -> list[float]:
    """The rates below the first that did not hold at which nothing could be judged."""
    _, breaks = ends(rates)
    return sorted(rate for rate, held in rates.items() if held is None and rate < breaks)
