"""A gate in words: lines for a terminal, a Markdown summary for a CI job, and JSON with every comparison."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tokenpeak.gate.comparison import OUTCOMES, ConfigComparison, Gate
from tokenpeak.gate.power import SHOWN, Power, PowerFigure
from tokenpeak.gate.side import Side
from tokenpeak.metrics import title_of
from tokenpeak.ranking.family import POWER
from tokenpeak.ranking.intervals import CONFIDENCE
from tokenpeak.search.remaining import duration_text
from tokenpeak.terminal import visible

FEW = 3
"""So many configs of which the same is said are named on a terminal."""
LARGEST_SHARE = 10.0
"""A regression that is larger is none that anybody waits for."""
EQUAL_BY = {"id": "equal by id", "settings": "equal but for their engine build"}


_MARKUP = re.compile(r"[^\w\s(),;%+−–→·/.=-]|_|\.(?=[^\W\d])|\bGH-\d|^[-+=]", re.IGNORECASE)
BAR = "\N{BROKEN BAR}"
"""In place of a bar, which ends a cell also where it is code."""


def percent(ratio: float) -> str:
    """A ratio as a signed change: 0.95 is −5.0%."""
    change = f"{(ratio - 1) * 100:+.1f}%"
    return change.replace("-", "−")


def change_words(comparison: ConfigComparison) -> str:
    """The change with its interval, and the reason where there is one."""
    change, said = comparison.change, comparison.reason
    if change is None:
        return said
    words = percent(change.ratio)
    if change.low is not None and change.high is not None:
        words += f" ({percent(change.low)} to {percent(change.high)})"
    return f"{words}; {said}" if said else words


def counts(gate: Gate) -> str:
    """How many comparisons have each outcome."""
    return ", ".join(f"{len(gate.of(outcome))} {outcome}" for outcome in OUTCOMES)


def family_words(gate: Gate) -> str:
    """What the intervals guarantee together."""
    return (
        f"{gate.family} intervals hold together in {CONFIDENCE:.0%}: at most {1 - CONFIDENCE:.0%} of gates over equal "
        f"sides say regressed or improved at all; changes below {gate.margin:.0%} are ties"
    )


def widest(gate: Gate) -> float | None:
    """How far the widest interval of a tie reaches: so large a change may hide behind it."""
    bounds = [
        max(each.change.high - 1, 1 - each.change.low)
        for each in gate.of("tied")
        if each.change is not None and each.change.low is not None and each.change.high is not None
    ]
    return max(bounds, default=None)


def name_of(side: Side) -> str:
    """The sweeps of a side, marked where they are simulated."""
    return ", ".join(side.sweep_ids) + (" (simulated)" if side.simulated else "")


def lines(gate: Gate, *, everything: bool = False) -> Iterator[str]:
    """The gate for a terminal; ties only where `everything` is asked for."""
    yield f"new  {name_of(gate.new)}"
    yield f"old  {name_of(gate.old)}"
    for side in (gate.new, gate.old):
        yield from (f"caution: {caution}" for caution in side.cautions)
    for outcome in OUTCOMES if everything else OUTCOMES[:-1]:
        for (hardware, place, figure, words), configs in _grouped(gate.of(outcome)).items():
            yield f"{outcome.upper():14} {hardware} · {place} · {figure}: {words}"
            yield f"{'':14} {'; '.join(configs[:FEW])}{f'; and {len(configs) - FEW} more' if configs[FEW:] else ''}"
    for difference in gate.differences:
        yield f"differs        {difference.hardware + ': ' if difference.hardware else ''}{difference.words}"
    if gate.only_new:
        yield f"only in new    {', '.join(dict.fromkeys(gate.only_new))}"
    by = [f"{count} {words}" for key, words in EQUAL_BY.items() if (count := _pairs(gate, key))]
    yield f"configs: {', '.join(by) or 'none equal'}"
    if (reach := widest(gate)) is not None:
        yield f"a tie may hide a change of up to {reach:.1%}"
    yield family_words(gate)
    yield counts(gate)


def _grouped(comparisons: Sequence[ConfigComparison]) -> dict[tuple[str, str, str, str], list[str]]:
    """The configs of which the same is said, by what that is."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for each in comparisons:
        words = f"{change_words(each)} [n={each.new_launches} against {each.old_launches}]"
        found.setdefault((each.hardware, each.place, each.figure, words), []).append(each.config)
    return found


def _pairs(gate: Gate, by: str) -> int:
    return len({(each.hardware, each.config) for each in gate.comparisons if each.by == by})


def markdown(gate: Gate) -> str:
    """The gate as a summary of a CI job."""
    found = [f"## Gate: {'not passed' if gate.status else 'passed'}", "", f"**{counts(gate)}**", ""]
    found += [f"New: {_cell(name_of(gate.new))}  ", f"Old: {_cell(name_of(gate.old))}", ""]
    shown = [each for outcome in OUTCOMES[:-1] for each in gate.of(outcome)]
    found += _table(shown)
    if gate.differences:
        found += ["| What differs | Old | New |", "|---|---|---|"]
        for each in gate.differences:
            what = f"{each.what} ({each.hardware})" if each.hardware else each.what
            found.append("| " + " | ".join(map(_cell, (what, ", ".join(each.old), ", ".join(each.new)))) + " |")
        found.append("")
    found += [f"- {_cell(caution)}" for side in (gate.new, gate.old) for caution in side.cautions]
    if ties := gate.of("tied"):
        found += [f"<details><summary>{len(ties)} tied</summary>", "", *_table(ties), "</details>", ""]
    found.append(f"{family_words(gate)}.")
    return "\n".join(found) + "\n"


def _table(comparisons: Sequence[ConfigComparison]) -> list[str]:
    if not comparisons:
        return []
    head = ["| | Hardware | Config | Load | Figure | Change | Launches |", "|---|---|---|---|---|---|---|"]
    rows = [
        (
            each.outcome,
            each.hardware,
            each.config,
            each.place,
            each.figure,
            change_words(each),
            f"{each.old_launches} → {each.new_launches}",
        )
        for each in comparisons
    ]
    return [*head, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows), ""]


def _cell(text: str) -> str:
    """Text that stays within a table's cell and is no markup; names come from archives.

    What could mention somebody, link or be a formula is code: a service looks for these in what the markup is made to.
    """
    text = " ".join(visible(text).split())
    if not _MARKUP.search(text):
        return text
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text.replace('|', BAR)}{pad}{fence}"


def as_json(gate: Gate) -> dict[str, Any]:
    """The gate with every comparison."""
    return {
        "new": list(gate.new.sweep_ids),
        "old": list(gate.old.sweep_ids),
        "simulated": gate.new.simulated or gate.old.simulated,
        "status": int(gate.status),
        "margin": gate.margin,
        "confidence_of_all": CONFIDENCE,
        "intervals": gate.family,
        "counts": {outcome: len(gate.of(outcome)) for outcome in OUTCOMES},
        "comparisons": [_json_of(each) for each in gate.comparisons],
        "differences": [vars(each) for each in gate.differences],
        "only_in_new": list(gate.only_new),
        "cautions": [*gate.new.cautions, *gate.old.cautions],
    }


def _json_of(each: ConfigComparison) -> dict[str, Any]:
    change = each.change
    return {
        "hardware": each.hardware,
        "config": each.config,
        "equal_by": each.by,
        "workload": each.load.workload if each.load else None,
        "level": each.load.level if each.load else None,
        "metric": each.metric,
        "outcome": each.outcome,
        "ratio": change.ratio if change else None,
        "low": change.low if change else None,
        "high": change.high if change else None,
        "old_launches": each.old_launches,
        "new_launches": each.new_launches,
        "reason": each.reason,
    }


def power_lines(power: Power, old: Side, *, regression: float, hours: float | None) -> Iterator[str]:
    """What a gate against a side will find, by the number of launches, and what finding a regression takes."""
    yield f"old  {name_of(old)}"
    configs = f"{power.configs} config{'' if power.configs == 1 else 's'}"
    yield (
        f"{power.comparisons} comparisons of {configs}; false alarms at most {1 - CONFIDENCE:.0%} over all of them "
        f"together; changes below {power.margin:.0%} are ties"
    )
    yield f"Smallest regression found in {POWER:.0%}, of the config that varies most, by new launches of each config:"
    for figure in power.figures:
        launches = f"{figure.launches} launch{'' if figure.launches == 1 else 'es'}"
        yield f"  {_place(power, figure)}: {title_of(figure.metric)} (old: {launches})"
        yield "    " + "  ".join(f"n={n}: {_size(power.smallest(figure, n), figure)}" for n in SHOWN)
    if power.launch_s is not None:
        yield f"One launch of every config takes {duration_text(power.launch_s)} on the nodes that old ran on."
    yield from _needed_lines(power, regression, hours)


def _place(power: Power, figure: PowerFigure) -> str:
    several = len({each.hardware for each in power.figures}) > 1
    load = f"{figure.load.workload} {figure.load.level}"
    return f"{figure.hardware} · {load}" if several else load


def _size(share: float | None, figure: PowerFigure) -> str:
    if share is None:
        return "not known" if figure.spread is None else "none"
    if share >= LARGEST_SHARE:
        return "none"
    return f"{share:.1%}" if share < 1 else f"{share + 1:.1f}-fold"


def _needed_lines(power: Power, regression: float, hours: float | None) -> Iterator[str]:
    """How many launches find the regression, and whether they are affordable."""
    asked = f"To find a regression of {regression:.1%} in every figure"
    if any(figure.spread is None for figure in power.figures) or not power.figures:
        yield f"{asked}: not known, because old launched no config twice. Launch it again with search.replicates: 3."
        return
    needed, both = power.needed(regression), False
    if needed is None:
        needed, both = power.needed(regression, both=True), True
    if needed is None:
        yield f"{asked}: not affordable, no number of launches does. Choose fewer configs, figures, or a larger one."
        return
    where = f"{needed} launches of each config, of old as well" if both else f"{needed} new launches of each config"
    cost_s = None if power.launch_s is None else power.launch_s * needed * (2 if both else 1)
    yield f"{asked}: {where}" + (f", {duration_text(cost_s)}." if cost_s is not None else ".")
    if hours is None or cost_s is None or cost_s <= hours * 3600:
        return
    there = (power.affordable(hours * 3600) or 0) // (2 if both else 1)
    found = [(power.smallest(figure, there, both=both), figure) for figure in power.figures]
    worst, figure = max(found, key=lambda each: float("inf") if each[0] is None else each[0])
    finds = "nothing" if worst is None else _size(worst, figure)
    yield (
        f"Not affordable in {duration_text(hours * 3600)}: {there} launches of each config are affordable, "
        f"which find {finds}. "
        "Choose fewer configs (--config) or figures (--metric), or more nodes."
    )


def power_json(power: Power, old: Side, *, regression: float, hours: float | None) -> dict[str, Any]:
    """What a gate against a side will find."""
    needed, both = power.needed(regression), power.needed(regression, both=True)
    affordable = None if hours is None else power.affordable(hours * 3600)
    return {
        "old": list(old.sweep_ids),
        "comparisons": power.comparisons,
        "margin": power.margin,
        "launch_s": power.launch_s,
        "regression": regression,
        "launches_needed": needed,
        "launches_needed_of_both": both,
        "launches_affordable": affordable,
        "is_affordable": None if affordable is None else needed is not None and needed <= affordable,
        "figures": [
            {
                "hardware": figure.hardware,
                "workload": figure.load.workload,
                "level": figure.load.level,
                "metric": figure.metric,
                "old_launches": figure.launches,
                "deviation": figure.spread.deviation if figure.spread else None,
                "smallest": {str(n): power.smallest(figure, n) for n in SHOWN},
            }
            for figure in power.figures
        ],
    }
