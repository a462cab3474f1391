"""The overview's sentences: headline, cautions, tie, holdout run, what the sweep took, next steps."""

import re
from typing import Any

from judge.ranking import group, tied_with_median
from judge.raw import geometric
from judge.text import HW, LEVEL, UNIT, Figures, N, P, Site, limits, must, pattern


@pattern(
    rf"On (?P<hw>{HW}), run ⟦(?P<said>[^⟧]+)⟧ ?: (?P<value>{N}) (?:{UNIT}) at (?P<level>{LEVEL})"
    rf"(?:, (?:(?P<gain>{P}) over|within (?P<margin>\d+)% of) "
    rf"(?P<base>the engine's defaults|production|the median of the configs tried)"
    r"(?P<once>; each launched once|; one figure a config, launches unknown)?\."
    r"|; no gain shown: (?P<half>\d+ of \d+ configs (?:tie|are within \d+% of the best))\."
    r"|\. Nothing tried beats (?P<own>the engine's defaults|production)(?P<tie> beyond a tie)?\.)(?= |$)"
)
def headline(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    label = site.config(found["said"], hw)
    means, tied = raw.means(hw, raw.metric), raw.group(hw)
    must(label in tied, f"{label} is worse than another")
    site.recommended[hw] = label
    must(found["level"].split(", ")[-1] == raw.level, "the objective's level")
    yield found["value"], means[label]
    _, base, own = raw.baseline(hw)
    if found["own"]:
        must(found["own"] == raw.baseline_phrase(hw), "the baseline's name")
        must(own == label, "the baseline is recommended")
        must(bool(found["tie"]) == (len(tied) > 1), "there is a tie")
    elif found["half"]:
        must(tied_with_median(raw, hw), "a gain")
        yield from group(raw, hw, found["half"])
    else:
        must(found["base"] == raw.baseline_phrase(hw), "the baseline's name")
        must(not tied_with_median(raw, hw), "half of the configs tie")
        must(bool(found["once"]) == (raw.half(hw, 1) is None), "launched once")
        must(not found["once"] or ("unknown" in found["once"]) == raw.launches_unknown, "whether launches are known")
        gain = (means[label] / base - 1) * 100
        if found["margin"]:
            must(bool(found["once"]) and abs(gain) < raw.margin * 100, "the gain is beyond the margin")
            yield found["margin"], raw.margin * 100
        else:
            yield found["gain"], gain


@pattern(
    r"The gain comes with (?P<what>.+?)\. At equal precision, nothing tried beats "
    r"(?P<base>the engine's defaults|production)\. The recommended config's quality was not measured\."
)
def precision(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, site.only
    config = raw.config(hw, site.recommended[hw])
    words, base, _ = raw.baseline(hw)
    must(found["base"] == raw.baseline_phrase(hw), "the baseline's name")

    def formats(flags: dict[str, Any]) -> tuple[str, str]:
        cache = str(flags.get("kv_cache_dtype") or "auto")
        return str(flags.get("quantization") or ""), "" if cache == "auto" else cache

    own, plain = formats(config["flags"]), formats(raw.config(hw, words)["flags"])
    said = [f"{own[0]} weights"] * (own[0] != plain[0]) + [f"{own[1]} KV cache"] * (own[1] != plain[1])
    must(found["what"] == " and ".join(said), f"it changes {said}")
    means = raw.means(hw, raw.metric)
    equal = [value for label, value in means.items() if formats(raw.config(hw, label)["flags"]) == plain]
    must(max(equal) == base, "a config of equal precision is better")
    must(all(trial.get("quality") is None for trial in raw.trials), "quality was measured")
    return iter(())


@pattern(r"Measured with random weights: speed is real, answers are not\. Measure quality before you deploy\.")
def random_weights(site: Site, found: re.Match[str]) -> Figures:
    config = site.raw.config(site.only, site.recommended[site.only])
    must(config["flags"].get("load_format") == "dummy", "its weights are real")
    return iter(())


@pattern(r"Simulated: no GPU was measured, so none of these figures is a GPU's\.")
def simulated(site: Site, found: re.Match[str]) -> Figures:
    must(site.raw.sweep["simulated"], "it was measured")
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
    r"The next, ⟦(?P<next>[^⟧]+)⟧, is (?P<behind>[\d.]+)% behind; "
    r"with (?P<lone>one launch each|one figure a config), noise is unknown\.|No other config ties with it\."
)
def alone(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, list(site.recommended)[-1]
    must(len(raw.group(hw)) == 1, "another ties")
    if found["next"]:
        must(raw.half(hw, 1) is None, "there are intervals")
        must((found["lone"] == "one figure a config") == raw.launches_unknown, "whether launches are known")
        best, second = sorted(raw.means(hw, raw.metric).values(), reverse=True)[:2]
        must(raw.means(hw, raw.metric)[found["next"]] == second, "the next")
        yield found["behind"], (1 - second / best) * 100


@pattern(
    r"(?P<n>\d+) configs (?P<how>tie|are within (?P<margin>\d+)% of the best); this one measured "
    r"(?:best|the same as the best|(?P<behind>[\d.]+)% below the best) "
    r"and (?:is closest to|changes nothing of) the engine's defaults\."
)
def tie(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    hw = list(site.recommended)[-1]
    group, means = raw.group(hw), raw.means(hw, raw.metric)
    yield found["n"], len(group)
    must((found["how"] == "tie") == (raw.half(hw, 1) is not None), "how it ties")
    if found["margin"]:
        yield found["margin"], raw.margin * 100
    own = means[site.recommended[hw]]
    if found["behind"]:
        yield found["behind"], (1 - own / max(means.values())) * 100
    else:
        must(round(own / max(means.values()) - 1, 3) == 0, "it measured best")


@pattern(rf"At (?P<place>{LEVEL}) it gives only (?P<mine>{N}) tok/s; ⟦(?P<label>[^⟧]+)⟧ gives (?P<best>{N})\.")
def elsewhere(site: Site, found: re.Match[str]) -> Figures:
    """Another load of another workload, where the recommended config is far behind the best."""
    raw, hw = site.raw, list(site.recommended)[-1]
    workload, _, level = found["place"].rpartition(", ")
    speeds: dict[str, list[float]] = {}
    for trial, run in raw.runs(hw, level, workload or None):
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
