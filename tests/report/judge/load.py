"""Sentences and captions of the load page and the requests page."""

import math
import re
from typing import Any

from judge import rates
from judge.raw import Raw, geometric
from judge.text import HW, LEVEL, Figures, N, Site, confidence, must, number, pattern


def _own_level(raw: Raw, said: str) -> str:
    """A level without its workload, which is the objective's; several workloads are named."""
    workload, is_named, level = said.rpartition(", ")
    must(not is_named or workload == raw.workload, f"{workload} is not the objective's workload")
    return level


@pattern(
    rf"On (?P<hw>{HW}), throughput is highest with ⟦(?P<label>[^⟧]+)⟧ at (?P<level>{LEVEL}): (?P<value>{N}) tok/s, "
    rf"(?P<user>{N}) tok/s for the median request\."
    rf"(?: The median request is fastest with ⟦(?P<who>[^⟧]+)⟧ at (?P<where>{LEVEL}): (?P<fast>{N}) tok/s\.(?= |$))?"
)
def fastest(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    speeds: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for trial, run in raw.runs(hw, "*"):
        speeds.setdefault((raw.label(trial["config"]), run["level_label"]), []).append(
            (run["summary"]["output_tok_per_s"], run["summary"]["request_output_tok_per_s"]["p50"])
        )
    means = {key: (geometric([a for a, _ in own]), geometric([b for _, b in own])) for key, own in speeds.items()}
    most = max(means, key=lambda key: means[key][0])
    must((found["label"], _own_level(raw, found["level"])) == most, f"{most} gives most")
    yield found["value"], means[most][0]
    yield found["user"], means[most][1]
    top = max(means, key=lambda key: means[key][1])
    if found["fast"]:
        must((found["who"], _own_level(raw, found["where"])) == top, f"{top} is fastest")
        yield found["fast"], means[top][1]
    else:
        must(top == most, f"{top} is faster")


@pattern(rf"On (?P<hw>{HW}), (?P<rate>{N}) req/s is the highest rate at which (?P<slo>.+?) held\. (?P<rest>.+)$")
def held_rate(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    every = rates.states(raw, hw)
    ends = {label: rates.ends(own) for label, own in every.items()}
    held: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for trial in raw.trials:
        for run in trial["runs"]:
            rate = run["level"].get("rate_per_s")
            if rate and trial["hardware"] == hw and every[raw.label(trial["config"])][rate]:
                held.setdefault((raw.label(trial["config"]), rate), []).append(run)
    top = max(low for low, _ in ends.values())
    same = [label for label, (low, _) in ends.items() if low == top]
    yield found["rate"], top
    rest = found["rest"]
    if shown := re.search(r"(\d+) of (\d+) configs held it", rest):
        yield shown[1], len(same)
        yield shown[2], len(ends)
    else:
        must(f"⟦{same[0]}⟧ held it" in rest, "who held it")
    if shown := re.search(rf"with (?:at least )?({N})% confidence", rest):
        least = min(confidence(held[label, top], raw) for label in same)
        must(number(shown[1])[0] == min(math.floor(least * 1000), 999) / 10, f"confidence {least}")
    if shown := re.search(rf"The limit lies between ({N}) and ({N}) req/s", rest):
        yield shown[1], top
        yield shown[2], min(ends[label][1] for label in same)
    else:
        must(all(ends[label][1] == math.inf for label in same) or "of them held every rate" in rest, "an open end")
    unknown = [label for label in ends if label not in same and top in rates.unjudged(every[label])]
    shown = re.search(r"(\d+) others? may hold it too: (?:its run|their runs) could not be judged", rest)
    must(bool(shown) == bool(unknown), "rates that were not judged")
    if shown:
        yield shown[1], len(unknown)


@pattern(
    rf"(?P<hw>{HW}), (?P<level>{LEVEL}): with ⟦(?P<label>[^⟧]+)⟧ 99% of requests got their first token "
    rf"within (?P<ms>{N}) ms"
    rf"(?:, with (?P<base>\w+) within (?P<other>{N}) ms)?\."
)
def tail(site: Site, found: re.Match[str]) -> Figures:
    hw = found["hw"]
    must(found["label"] == site.recommended[hw], "the recommended config")
    yield found["ms"], site.raw.means(hw, "ttft_s_p99")[found["label"]] * 1000
    if found["base"]:
        yield found["other"], site.raw.means(hw, "ttft_s_p99")[found["base"]] * 1000


@pattern(r"No config has runs to rank at more than one rate, or number of requests in flight, so there is no curve\.")
def no_curve(site: Site, found: re.Match[str]) -> Figures:
    loads: dict[tuple[str, str], dict[str, set[float]]] = {}
    for trial in site.raw.trials:
        for run in trial["runs"]:
            own = loads.setdefault(
                (trial["hardware"], run["workload"]["name"]), {"rate_per_s": set(), "concurrency": set()}
            )
            for kind, levels in own.items():
                if run["verdict"]["status"] != "invalid" and run["level"].get(kind):
                    levels.add(run["level"][kind])
    alone = [own for own in loads.values() if all(len(levels) < 2 for levels in own.values())]
    must(bool(alone), "a workload with fewer than two loads of a kind")
    return iter(())
