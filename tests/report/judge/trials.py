"""Sentences of the pages of trials, checks and hardware."""

import math
import re
from statistics import median
from typing import Any

import polars as pl
from scipy import stats

from judge import energy
from judge.checks import checks
from judge.raw import geometric, metric_of
from judge.text import HW, Figures, N, P, Site, WrongError, must, pattern


@pattern(
    rf"(?P<n>\d+) launches, of which (?:all|(?P<ok>\d+)) gave a result; they took (?P<minutes>{N}) "
    rf"node-minutes, (?P<share>\d+)% of it under load\. TokenPeak itself took (?P<own>{N}) s of the median trial\."
)
def launches(site: Site, found: re.Match[str]) -> Figures:
    trials = site.raw.trials
    ok = sum(trial["status"] == "ok" for trial in trials)

    def seconds(trial: dict[str, Any], kind: str) -> float:
        return sum(phase["duration_s"] for phase in trial["phases"] if phase["kind"] == kind)

    total = sum(trial["duration_s"] for trial in trials)
    yield found["n"], len(trials)
    yield found["ok"] or str(len(trials)), ok
    yield found["minutes"], total / 60
    yield found["share"], sum(seconds(trial, "load") for trial in trials) / total * 100
    yield found["own"], median(seconds(trial, "orchestration") for trial in trials)


@pattern(
    r"(?P<n>\d+) (?P<what>launches|configs) have published figures; "
    r"when each was made and how long it took is not known\."
)
def published(site: Site, found: re.Match[str]) -> Figures:
    must((found["what"] == "configs") == site.raw.launches_unknown, "whether launches are known")
    yield found["n"], len(site.raw.trials)


@pattern(
    r"(?P<n>\d+) of (?P<all>\d+) trials ended early, far behind in the objective's run: their other "
    r"load levels were left out\."
)
def early(site: Site, found: re.Match[str]) -> Figures:
    yield found["n"], sum(bool(trial.get("left_out")) for trial in site.raw.trials)
    yield found["all"], len(site.raw.trials)


@pattern(r"(?P<kind>Drift|Noise)(?: on [\w-]+)?: .+?\.(?= |$)")
def drift(site: Site, found: re.Match[str]) -> Figures:
    """A line through the logarithms of one config's launches over time, with its t interval, over the whole span."""
    raw = site.raw
    by: dict[str, list[tuple[float, float]]] = {}
    first = None
    for trial in sorted(raw.trials, key=lambda each: each["started_at"]):
        if trial.get("holdout") or trial["status"] != "ok":
            continue
        label = raw.label(trial["config"])
        first = first or label
        own = [run for each, run in raw.runs(trial["hardware"]) if each is trial]
        value = metric_of(own[0], raw.metric) if own else None
        if value:
            at = pl.Series([trial["started_at"]]).str.to_datetime(time_zone="UTC")[0].timestamp()
            by.setdefault(label, []).append((at, math.log(value)))
    names = {trial["config"]["name"]: raw.label(trial["config"]) for trial in raw.trials}
    anchor = next((names[name] for name in raw.baselines if name in names and names[name] in by), first)
    times, logs = zip(*by[str(anchor)], strict=True)
    line = stats.linregress(times, logs)
    reach = float(stats.t.ppf(0.975, len(times) - 2)) * line.stderr
    length = max(times) - min(times)
    ends = [math.expm1((line.slope + sign * reach) * length) * 100 for sign in (-1, 1)]
    shown = re.findall(P, found[0])
    if found["kind"] == "Drift" and "too few" in found[0]:
        yield from zip(shown, ends, strict=True)
        words = {3: "three", 4: "four", 5: "five", 6: "six"}.get(len(times), str(len(times)))
        must(f"{words} launches" in found[0], f"{len(times)} launches")
    elif found["kind"] == "Noise":
        left = [log - line.intercept - line.slope * at for at, log in zip(times, logs, strict=True)]
        yield shown[0], math.sqrt(sum(each**2 for each in left) / (len(times) - 2)) * 100
    else:
        raise WrongError(f"nothing judges {found[0]}")


@pattern(
    r"(?:(?P<claims>\d+) claims? of the source, checked by its data, arithmetic and physics: "
    r"(?P<said>[\w ,]+)\. )?"
    r"(?P<checks>\d+ of \d+ checks of the figures ran; (?:no warning|\d+ warnings?: [\w\s,-]+))\."
)
def checked(site: Site, found: re.Match[str]) -> Figures:
    if found["claims"]:
        claims = (site.raw.folder / "claims.yml").read_text()
        stated = len(re.findall(r"^\s*-?\s*id: ", claims, re.MULTILINE))
        yield found["claims"], stated
        # Each verdict is recomputed, claim by claim, in tests/archives; here they add up.
        yield str(sum(int(each) for each in re.findall(r"\d+", found["said"]))), stated
    yield from checks(site.raw, found["checks"].replace("of the figures ", ""))


@pattern(
    rf"With its chosen config, (?P<hw>{HW}) gives (?P<value>{N}) tok/s per GPU, "
    rf"(?P<ratio>{N}) times (?P<other>{HW})\."
    r"(?: Per output token it needs (?P<share>\d+)% (?P<how>less|more) energy\.)?"
)
def hardware(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    best = {hw: max(raw.means(hw, raw.metric).items(), key=lambda each: each[1]) for hw in raw.hardware}
    top, last = best[found["hw"]], best[found["other"]]
    yield found["value"], top[1]
    yield found["ratio"], top[1] / last[1]
    if found["share"]:
        joules = [geometric(energy.joules(raw, hw)[best[hw][0]]) for hw in (found["hw"], found["other"])]
        change = joules[0] / joules[1] - 1
        must((change < 0) == (found["how"] == "less"), "less or more")
        yield found["share"], abs(change) * 100


@pattern(
    rf"On (?P<hw>{HW}), ⟦(?P<axis>\w+)=(?P<other>[^⟧]+)⟧ gives (?P<ratio>{N}) times the [\w ]+ of "
    r"⟦(?P<first>[^⟧]+)⟧, over (?P<n>\d+) matched pairs?\."
)
def formats(site: Site, found: re.Match[str]) -> Figures:
    raw, axis = site.raw, found["axis"]
    means = raw.means(found["hw"], raw.metric)
    choices = {label: raw.config(found["hw"], label)["choices"] for label in means}
    must(found["first"] == raw.axes[axis][0], "the first of its axis")
    ratios = [
        means[one] / means[other]
        for one, own in choices.items()
        for other, theirs in choices.items()
        if own.get(axis) == found["other"] and theirs == {**own, axis: found["first"]}
    ]
    yield found["n"], len(ratios)
    yield found["ratio"], geometric(ratios)
