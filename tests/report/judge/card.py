"""The tiles of the score card."""

import math
import re

from judge import energy, rates
from judge.checks import checks
from judge.raw import Raw, geometric
from judge.text import Figures, N, P, Site, WrongError, current, limits, must, number, own_runs, pattern

MARKS = ("run", "ahead, not proven", "keep what you run", "nearest to the SLO", "not known")


@pattern(r"(?P<all>.+)")
def tile(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    parts = [part.strip() for part in found["all"].split(" | ") if part.strip()]
    title, value, *rest = parts
    if title == first_tile(raw):
        site.card += 1
    hw, label = current(site)
    _, _, base_label = raw.baseline(hw)
    means = raw.means(hw, raw.metric)
    text = " | ".join(rest)
    at = {"ttft": "p95", "tpot": "p95"} | {name: percentile for name, percentile, _ in reversed(list(limits(raw)))}
    plain = {f"{name.upper()} {at[name]}": (f"{name}_s_{at[name]}", 1000.0) for name in ("ttft", "tpot")}
    if title == first_tile(raw):
        yield value, means[label]
        must(any(word in text for word in MARKS), "what the decision is called")
        if shown := re.search(rf"({N}) to ({N}) \(95%\)", text):
            half = raw.half(hw, len(raw.values(hw, raw.metric)[label]))
            assert half is not None
            yield shown[1], means[label] * math.exp(-half)
            yield shown[2], means[label] * math.exp(half)
        return
    if title == "Gain at equal precision":
        now = raw.current(hw)
        others = set(means) - raw.not_compared(hw) - {now}
        allowed = others & set(raw.may_run(hw))
        must((value == "not explored") == (not allowed), "whether another of its precision may be run")
        shown = re.search(r"(\d+|no) other configs? of this precision tried", text)
        must(shown, "how many others were tried")
        assert shown is not None
        yield shown[1].replace("no", "0"), len(others)
        if value not in ("not explored", "none shown"):
            yield value, (means[label] / raw.of(hw, now) - 1) * 100
        return
    if title == "Gain":
        yield value, (means[label] / raw.of(hw, raw.current(hw)) - 1) * 100
        must(raw.half(hw, 1) is not None and raw.baseline_phrase(hw) in text, "a gain that launches show")
        return
    if title == "SLO" and value == "none set":
        must(not list(limits(raw)), "an SLO")
        return
    if title == "SLO":
        own = own_runs(site, hw, label)
        is_met = all(run["slo_met"] for run in own)
        is_proven = is_met and raw.confidence(hw, label) >= 0.95
        must(value == ("held" if is_proven else "held, not proven" if is_met else "broken"), "whether the SLO held")
        for name, percentile, limit in limits(raw):
            shown = re.search(rf"{name.upper()} {percentile} ({N}) of ({N}) ms", text)
            if shown:
                yield shown[1], geometric([run["summary"][f"{name}_s"][percentile] for run in own]) * 1000
                yield shown[2], limit
        if shown := re.search(rf"({N})% confidence", text):
            lowest = raw.confidence(hw, label)
            must(number(shown[1])[0] == min(math.floor(lowest * 1000), 999) / 10, f"confidence {lowest}")
        return
    if title in plain:
        name, scale = plain[title]
        yield from compared(site, hw, label, base_label, name, scale, value, text)
        return
    if title == "Energy":
        yield from energy_tile(site, hw, label, base_label, value, text)
        return
    if title == "Cost" and value == "not known":
        must(label not in raw.means(hw, "output_tok_per_s"), "the node's throughput")
        return
    if title == "Cost":
        speed = raw.means(hw, "output_tok_per_s")[label]
        price = raw.sweep["spec"]["energy"]["price_per_node_hour"]
        if price is None:
            flags = raw.config(hw, label)["flags"]
            gpus = math.prod(int(flags.get(f"{each}_parallel_size") or 1) for each in ("tensor", "pipeline", "data"))
            yield value, gpus * 1e6 / 3600 / speed
            must("no price is given" in text, "a price is given")
        else:
            yield from compared_values(
                value, text, price / 3600 / speed * 1e6, cost_of_base(raw, hw, base_label, price)
            )
        return
    if title == "Trust":
        yield re.match(r"\d+", value)[0], len(raw.values(hw, raw.metric)[label])  # type: ignore[index]
        deviation, _ = raw.spread(hw)
        must(("launches unknown" in text) == (raw.launches_unknown and deviation is None), "whether launches are known")
        if deviation is None:
            must("each launched once: noise unknown" in text or raw.launches_unknown, "noise is known")
        else:
            shown = re.search(r"launches vary by ([\d.]+)%", text)
            assert shown is not None
            yield shown[1], math.expm1(deviation) * 100
        yield from checks(raw, text)
        must(("simulated" in text) == raw.sweep["simulated"], "simulated")
        must(("did not end" in text) == (raw.end is None), "ended")
        return
    if title == "Rate within SLO":
        yield from rate_tile(site, hw, label, value, text)
        return
    raise WrongError(f"nothing judges the tile {title}")


def first_tile(raw: Raw) -> str:
    """The title of a card's first tile."""
    return {
        "output_tok_per_s": "Output throughput",
        "request_output_tok_per_s_mean": "Mean output speed of a request",
    }[raw.metric]


def against(raw: Raw, hw: str, base_label: str | None, label: str, name: str) -> float | None:
    """The baseline's figure; None of itself, and where it is no config."""
    means = raw.means(hw, name)
    if base_label == label:
        return None
    return means.get(base_label) if base_label else None


def compared(
    site: Site, hw: str, label: str, base_label: str | None, name: str, scale: float, value: str, text: str
) -> Figures:
    """A figure with the baseline's and the change to it."""
    own = site.raw.means(hw, name)[label]
    base = against(site.raw, hw, base_label, label, name)
    yield from compared_values(value, text, own * scale, base * scale if base else None)


def compared_values(value: str, text: str, own: float, base: float | None) -> Figures:
    """The same of known values."""
    yield value, own
    if shown := re.search(rf"({P}) against", text):
        assert base is not None
        yield shown[1], (own / base - 1) * 100


def cost_of_base(raw: Raw, hw: str, base_label: str | None, price: float) -> float | None:
    """The baseline's cost of a million tokens by the node's time."""
    costs = {label: price / 3600 / speed * 1e6 for label, speed in raw.means(hw, "output_tok_per_s").items()}
    return costs.get(base_label) if base_label else None


def energy_tile(site: Site, hw: str, label: str, base_label: str | None, value: str, text: str) -> Figures:
    """Energy with its interval and the baseline's."""
    launches = energy.joules(site.raw, hw)
    means = {each: geometric(own) for each, own in launches.items()}
    base = None if base_label in (label, None) else means.get(str(base_label))
    yield from compared_values(value, text, means[label], base)
    measured = energy.is_measured(site.raw, hw)
    must(("estimated" in text) != measured, "how the energy is known")
    simulated = site.raw.sweep["simulated"]
    must(("measured at" in text) == (measured and not simulated), "whether a device was measured")
    must(("simulated at" in text) == (measured and simulated), "whether the energy is simulated")
    must(f"at {site.raw.level}" in text, "the load of the energy")
    must(measured or "against" not in text, "an estimate that is compared")
    ends = energy.intervals(site.raw, hw)[label]
    must(
        ("one launch, no interval" in text) == (ends is None and measured and len(launches[label]) == 1), "no interval"
    )
    shown = re.search(rf"({N}) to ({N}) \(95%\)", text)
    must((shown is None) == (ends is None), "whether an interval is known")
    if shown is not None and ends is not None:
        yield from zip((shown[1], shown[2]), ends, strict=True)


def rate_tile(site: Site, hw: str, label: str, value: str, text: str) -> Figures:
    """The sustainable rate: the highest within the SLO in every launch, below the first that was not."""
    own = rates.states(site.raw, hw)[label]
    holds, breaks = rates.ends(own)
    must((value == "none") == (not holds), "whether any rate is sustainable")
    if holds:
        must(value.startswith("≥ ") == (breaks == math.inf), "an open end")
        yield value.removeprefix("≥ "), holds
    must(("the limit was not reached" in text) == (breaks == math.inf), "whether a rate broke the SLO")
    if shown := re.search(rf"breaks at ({N})", text):
        yield shown[1], breaks
    unknown = re.search(r"([\d., and]+) req/s could not be judged", text)
    yield from zip(re.findall(N, unknown[1]) if unknown else [], rates.unjudged(own), strict=True)
