"""Energy of configs by the methodology's formulas, and the sentence of their page."""

import math
import re
from statistics import fmean

from scipy import stats

from judge.raw import Raw, geometric
from judge.text import HW, Figures, N, Site, must, pattern


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


def intervals(raw: Raw, hardware: str) -> dict[str, tuple[float, float] | None]:
    """The ends of each config's mean by the spread of energies, else of the objective; None where neither is known."""
    launches = joules(raw, hardware)
    logs = {label: [math.log(each) for each in own] for label, own in launches.items()}
    squares = sum((log - fmean(own)) ** 2 for own in logs.values() for log in own)
    freedom = sum(len(own) - 1 for own in logs.values())
    deviation = math.sqrt(squares / freedom) if freedom else None
    if deviation is None:
        deviation, freedom = raw.spread(hardware)
    if deviation is None or not is_measured(raw, hardware):
        return dict.fromkeys(launches)
    reach = float(stats.t.ppf(0.975, freedom)) * deviation
    return {
        label: (
            geometric(own) * math.exp(-reach / math.sqrt(len(own))),
            geometric(own) * math.exp(reach / math.sqrt(len(own))),
        )
        for label, own in launches.items()
    }


def tied_with_least(raw: Raw, hardware: str) -> int:
    """How many configs' intervals reach into that of the thriftiest."""
    launches, ends = joules(raw, hardware), intervals(raw, hardware)
    first = min(launches, key=lambda label: geometric(launches[label]))
    top = ends[first]
    if top is None:
        return 0
    return sum(1 for label, own in ends.items() if label != first and own is not None and own[0] <= top[1])


@pattern(
    rf"On (?P<hw>{HW}), ⟦(?P<label>[^⟧]+)⟧ uses (?:the least energy of all configs with an energy figure: )?"
    rf"(?P<joule>{N}) J per output token"
    rf"(?: \((?P<low>{N}) to (?P<high>{N})\)| \((?P<few>one launch|few launches), no interval\))?"
    rf"\. At the meter that is (?P<kwh>{N}) kWh per million\."
    r"(?: (?P<tied>\d+) others? (?:is|are) tied with it\.)?(?P<own> It is also the recommended one\.)?"
    r"(?: The recommended config needs (?:(?P<more>[\d.]+)% more|(?P<same>as much))\.)?"
)
def least_energy(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    must(is_measured(raw, hw), "a sensor")
    launches = joules(raw, hw)
    means = {label: geometric(own) for label, own in launches.items()}
    least = min(means, key=means.__getitem__)
    must(found["label"] == least, f"{least} needs least")
    yield found["joule"], means[least]
    ends = intervals(raw, hw)[least]
    must((found["low"] is None) == (ends is None), "whether an interval is known")
    must(not found["few"] or (found["few"] == "one launch") == (len(launches[least]) == 1), "how often it was launched")
    if ends is not None:
        yield from zip((found["low"], found["high"]), ends, strict=True)
    yield found["kwh"], means[least] / 3.6 * raw.sweep["spec"]["energy"]["pue"]
    yield found["tied"] or "0", tied_with_least(raw, hw)
    own = site.recommended[hw]
    must(bool(found["own"]) == (own == least and hw in site.known), "whether it is the recommended one")
    if found["more"]:
        yield found["more"], (means[own] / means[least] - 1) * 100
    if found["same"]:
        yield "0.0", (means[own] / means[least] - 1) * 100


@pattern(
    rf"On (?P<hw>{HW}), ⟦(?P<label>[^⟧]+)⟧ comes to (?P<joule>{N}) J per output token, estimated from rated power and "
    rf"throughput, not measured\. So configs are not ranked by energy\. At the meter that is (?P<kwh>{N}) kWh per "
    r"million\."
)
def estimated_energy(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    must(not is_measured(raw, hw), "an estimate")
    own = geometric(joules(raw, hw)[found["label"]])
    yield found["joule"], own
    yield found["kwh"], own / 3.6 * raw.sweep["spec"]["energy"]["pue"]
