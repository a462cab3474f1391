"""The energy page's sentences and caption."""

import re

from judge import energy
from judge.raw import geometric
from judge.text import HW, Figures, N, Site, must, pattern


@pattern(
    rf"On (?P<hw>{HW}), ⟦(?P<label>[^⟧]+)⟧ uses (?:the least energy of those with a figure: )?"
    rf"(?P<joule>{N}) J per output token"
    rf"(?: \((?P<low>{N}) to (?P<high>{N})\))?\. At the meter that is (?P<kwh>{N}) kWh per million\."
    r"(?: (?P<tied>\d+) others? (?:is|are) tied with it\.)?(?P<own> It is also the recommended one\.)?"
    r"(?: The recommended config needs (?:(?P<more>[\d.]+)% more|(?P<same>as much))\.)?"
    r"(?P<estimated> Estimated from the device's rated power, not measured\.)?"
)
def least_energy(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    launches, measured = energy.joules(raw, hw), energy.is_measured(raw, hw)
    means = {label: geometric(own) for label, own in launches.items()}
    least = min(means, key=means.__getitem__)
    must(found["label"] == least, f"{least} needs least")
    yield found["joule"], means[least]
    if found["low"]:
        ends = energy.intervals(launches, measured=measured)[least]
        assert ends is not None
        yield from zip((found["low"], found["high"]), ends, strict=True)
    yield found["kwh"], means[least] / 3.6 * raw.sweep["spec"]["energy"]["pue"]
    yield found["tied"] or "0", energy.tied_with_least(launches, measured=measured)
    own = site.recommended[hw]
    must(bool(found["own"]) == (own == least), "whether it is the recommended one")
    if found["more"]:
        yield found["more"], (means[own] / means[least] - 1) * 100
    if found["same"]:
        yield "0.0", (means[own] / means[least] - 1) * 100
    must(bool(found["estimated"]) != measured, "how it is known")
