"""The overview's sentences: headline, cautions, tie, holdout run, what the sweep took, next steps."""

import math
import re

from judge.raw import geometric
from judge.text import HW, LEVEL, UNIT, Figures, N, P, Site, limits, must, pattern

OUTCOMES = {
    "run": r"Run ⟦{said}⟧",
    "ahead": r"⟦{said}⟧ leads, but (?:the lead is not proven|is not proven to hold the SLO)",
    "keep": r"Keep (?P<kept>.+?), as nothing is shown to be better",
    "none_holds": r"Nothing holds the SLO; ⟦{said}⟧ comes nearest",
    "not_known": r"Not known: ⟦{said}⟧ "
    r"(?:is not shown to be better than another|has nothing that it may be compared with)",
}


@pattern(
    rf"On (?P<hw>{HW}): (?:"
    + "|".join(f"(?P<{name}>{words.format(said=f'(?P<said_{name}>[^⟧]+)')})" for name, words in OUTCOMES.items())
    + rf"): (?P<value>{N}) (?:{UNIT}) at (?P<level>{LEVEL})\.(?= |$)"
)
def headline(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    outcome = next(name for name in OUTCOMES if found[name])
    now = raw.current(hw)
    if outcome == "keep":
        must(now is not None, "something to keep")
        label = str(now)
        must(found["kept"] == raw.baseline_phrase(hw), "the name of what runs now")
    else:
        label = site.config(found[f"said_{outcome}"], hw)
    site.recommended[hw] = label
    must(found["level"].split(", ")[-1] == raw.level, "the objective's level")
    yield found["value"], raw.means(hw, raw.metric)[label]
    allowed = raw.may_run(hw)
    if outcome == "run" or (outcome == "keep" and raw.half(hw, 1) is not None):
        site.known.add(hw)
    if outcome == "none_holds":
        over = raw.excess(hw)
        must(set(over) == raw.broken(hw) == set(raw.means(hw, raw.metric)), "a config holds the SLO")
        must(over[label] == min(over.values()), "another is nearer to the SLO")
        return
    must(label in allowed, f"{label} may not be run")
    tied, is_known = raw.group(hw, allowed), raw.half(hw, 1) is not None
    ahead_of_now = [each for each in tied if now in allowed and raw.means(hw, raw.metric)[each] > raw.of(hw, now)]
    if outcome == "run":
        must(label in tied, f"{label} is worse than another")
        must(is_known or now in raw.broken(hw) or len(allowed) == 1, "nothing shows how much launches vary")
        must(now != label and (now not in allowed or now not in tied or len(raw.places) > 1), "what runs now ties")
    elif outcome == "ahead":
        must(label in tied and (now is None or label in ahead_of_now), "it is not ahead")
    elif outcome == "keep":
        must(now in tied or not is_known, f"{now} is worse than another")
    else:
        must(len(allowed) < 2 or set(allowed) == set(tied), "a config is worse than another")


@pattern(r"Nothing has to change: keep (?P<base>the engine's defaults|production)\.")
def unchanged(site: Site, found: re.Match[str]) -> Figures:
    must(found["base"] == site.raw.baseline_phrase(list(site.recommended)[-1]), "the name of what runs now")
    return iter(())


@pattern(r"It holds the SLO in its figures, but its requests do not show that with 95% confidence\.")
def unproven(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, list(site.recommended)[-1]
    must(site.recommended[hw] not in raw.broken(hw), "it breaks the SLO")
    return iter(())


@pattern(rf"Its worst latency is (?P<times>{N}) times its limit\.")
def nearest(site: Site, found: re.Match[str]) -> Figures:
    hw = list(site.recommended)[-1]
    yield found["times"], site.raw.excess(hw)[site.recommended[hw]]


@pattern(
    r"No config was launched again, so nothing shows how much launches vary\."
    r"|Launches of one config differ by (?P<vague>\d+)%, which shows nothing\."
    r"|Launches vary by (?P<noise>[\d.]+)%(?:, so this sweep shows differences above (?P<least>\d+)%)?\."
)
def noise(site: Site, found: re.Match[str]) -> Figures:
    """The pooled spread; what the sweep shows is judged by sweeps of known truth in tests/ranking."""
    raw, hw = site.raw, list(site.recommended)[-1]
    deviation, _ = raw.spread(hw)
    must((deviation is None) == found[0].startswith("No config"), "whether configs were launched again")
    if deviation is not None:
        must((raw.half(hw, 1) is None) == bool(found["vague"]), "whether the spread says something")
        yield found["vague"] or found["noise"], math.expm1(deviation) * 100


@pattern(
    rf"⟦(?P<said>[^⟧]+)⟧ measured (?P<gain>{P}) (?:\((?P<ends>.+?)\) )?over "
    r"(?P<base>the engine's defaults|production), which is not proven\."
)
def not_shown(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, list(site.recommended)[-1]
    must(found["base"] == raw.baseline_phrase(hw), "the name of what runs now")
    yield found["gain"], (raw.of(hw, site.config(found["said"], hw)) / raw.of(hw, raw.current(hw)) - 1) * 100


@pattern(
    r"⟦(?P<said>[^⟧]+)⟧ measured (?P<more>[\d.]+)% higher; (?P<why>it breaks the SLO"
    r"|its answers were not compared \(quality: \{reference: …\} in the sweep compares them\)"
    r"|too few requests show that it holds the SLO)(?:; the same holds for (?P<others>\d+) more)?\."
)
def faster(site: Site, found: re.Match[str]) -> Figures:
    """A config that may not be run, the best that is kept back for its reason, and how many more there are."""
    raw, hw = site.raw, list(site.recommended)[-1]
    means, own = raw.means(hw, raw.metric), raw.of(hw, site.recommended[hw])
    label = site.config(found["said"], hw)
    broken, other = raw.broken(hw), raw.not_compared(hw)
    kept = broken if found["why"].startswith("it breaks") else other - broken
    if found["why"].startswith("too few"):
        kept = set(means) - broken - other - set(raw.may_run(hw))
    beyond = [each for each in kept if means[each] > own * (1 + raw.margin)]
    must(label in kept and means[label] == max(means[each] for each in kept), "another is higher for this reason")
    yield found["more"], (means[label] / own - 1) * 100
    yield found["others"] or "0", len(beyond) - 1


@pattern(r"Measured with random weights: speed is real, answers are not\. Measure quality before you deploy\.")
def random_weights(site: Site, found: re.Match[str]) -> Figures:
    config = site.raw.config(site.only, site.recommended[site.only])
    must(config["flags"].get("load_format") == "dummy", "its weights are real")
    return iter(())


@pattern(rf"It does not hold the SLO at (?P<level>{LEVEL}) \((?P<limits>.+?)\)\.")
def broken(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    must(
        any(
            not run["slo_met"]
            for hw, label in site.recommended.items()
            for trial, run in raw.runs(hw)
            if raw.label(trial["config"]) == label
        ),
        "the SLO holds",
    )
    for name, percentile, limit in limits(raw):
        shown = re.search(rf"{name.upper()} {percentile} ≤ ({N}) ms", found["limits"])
        must(shown, f"the limit of {name}")
        assert shown is not None
        yield shown[1], limit


@pattern(
    r"(?P<n>\d+) configs (?P<how>tie|measured within the margin of the best); "
    r"this one (?P<why>is best under the other loads|has the lowest latency|changes the fewest settings)\."
)
def tie(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    hw = list(site.recommended)[-1]
    yield found["n"], len(raw.group(hw, raw.may_run(hw)))
    must((found["how"] == "tie") == (raw.half(hw, 1) is not None), "how it ties")


@pattern(
    rf"At (?P<level>{LEVEL})(?: of workload (?P<workload>\S+))? this config reaches only (?P<mine>{N}) tok/s; "
    rf"⟦(?P<label>[^⟧]+)⟧ reaches (?P<best>{N})\."
)
def elsewhere(site: Site, found: re.Match[str]) -> Figures:
    """Another load of another workload, where the recommended config is far behind the best."""
    raw, hw = site.raw, list(site.recommended)[-1]
    speeds: dict[str, list[float]] = {}
    for trial, run in raw.runs(hw, found["level"], found["workload"]):
        speeds.setdefault(raw.label(trial["config"]), []).append(run["summary"]["output_tok_per_s"])
    means = {label: geometric(own) for label, own in speeds.items()}
    must(max(means, key=means.__getitem__) == found["label"], "the best there")
    yield found["mine"], means[site.recommended[hw]]
    yield found["best"], means[found["label"]]


@pattern(rf" ?Holdout run on fresh requests: (?P<value>{N}) tok/s \(n=1 launch, which selected nothing\)\.")
def holdout(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    (run,) = (
        run for trial in raw.trials if trial.get("holdout") for run in trial["runs"] if run["level_label"] == raw.level
    )
    yield found["value"], run["summary"][raw.metric]


@pattern(r"(?P<all>.+)")
def caution(site: Site, found: re.Match[str]) -> Figures:
    """What an import says of itself, word for word."""
    imported = site.raw.sweep.get("imported") or {}
    must(found["all"] in imported.get("cautions", ()), f"nothing judges {found['all']!r}")
    return iter(())
