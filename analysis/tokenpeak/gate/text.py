"""A gate in words: lines for a terminal, a Markdown summary and JUnit XML for a CI job, JSON of every comparison."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from socket import gethostname
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tokenpeak.gate.comparison import OUTCOMES, ConfigComparison, Gate
from tokenpeak.ranking.intervals import CONFIDENCE
from tokenpeak.terminal import visible

FEW = 3
"""So many configs of which the same is said are named on a terminal."""
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
    change, reason = comparison.change, comparison.reason
    if change is None:
        return reason
    words = percent(change.ratio)
    if change.low is not None and change.high is not None:
        words += f" ({percent(change.low)} to {percent(change.high)})"
    return f"{words}; {reason}" if reason else words


def counts(gate: Gate) -> str:
    """How many comparisons have each outcome."""
    return ", ".join(f"{len(gate.of(outcome))} {outcome}" for outcome in OUTCOMES)


def family_words(gate: Gate) -> str:
    """The intervals' guarantee, together."""
    return (
        f"{gate.family} intervals hold together in {CONFIDENCE:.0%}: at most {1 - CONFIDENCE:.0%} of gates over equal "
        f"sides say regressed or improved at all; changes below {gate.margin:.0%} are ties"
    )


def hidden_words(gate: Gate) -> str:
    """How large a change a tie may hide; empty where nothing is tied."""
    reach = widest(gate)
    return "" if reach is None else f"a tie may hide a change of up to {reach:.1%}"


def widest(gate: Gate) -> float | None:
    """How far the widest interval of a tie reaches: so large a change may hide behind it."""
    bounds = [
        max(each.change.high - 1, 1 - each.change.low)
        for each in gate.of("tied")
        if each.change is not None and each.change.low is not None and each.change.high is not None
    ]
    return max(bounds, default=None)


def lines(gate: Gate, *, everything: bool = False) -> Iterator[str]:
    """The gate for a terminal; ties only where `everything` is asked for."""
    yield f"new  {gate.new.title}"
    yield f"old  {gate.old.title}"
    for side in (gate.new, gate.old):
        yield from (f"caution: {caution}" for caution in side.cautions)
    for outcome in OUTCOMES if everything else OUTCOMES[:-1]:
        for (hardware, place, figure, words), configs in _grouped(gate.of(outcome)).items():
            yield f"{outcome.upper():14} {hardware} · {place} · {figure}: {words}"
            yield f"{'':14} {_few(configs)}"
    for difference in gate.differences:
        yield f"differs        {difference.hardware + ': ' if difference.hardware else ''}{difference.words}"
    if gate.only_new:
        yield f"only in new    {_few(list(dict.fromkeys(gate.only_new)))}"
    if not gate.comparisons:
        yield "nothing is compared: no config was launched on both sides"
    by = [f"{count} {words}" for key, words in EQUAL_BY.items() if (count := _pairs(gate, key))]
    yield f"configs: {', '.join(by) or 'none equal'}"
    if hidden := hidden_words(gate):
        yield hidden
    yield family_words(gate)
    yield counts(gate)


def _few(names: Sequence[str]) -> str:
    return "; ".join([*names[:FEW], *([f"and {len(names) - FEW} more"] if names[FEW:] else [])])


def _grouped(comparisons: Sequence[ConfigComparison]) -> dict[tuple[str, str, str, str], list[str]]:
    """The configs of which the same is said, by what that is."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for each in comparisons:
        words = f"{change_words(each)} [n={each.new_launches} against {each.old_launches}]"
        groups.setdefault((each.hardware, each.place, each.figure, words), []).append(each.config)
    return groups


def _pairs(gate: Gate, by: str) -> int:
    return len({(each.hardware, each.config) for each in gate.comparisons if each.by == by})


def markdown(gate: Gate) -> str:
    """The gate as a summary of a CI job."""
    summary = [f"## Gate: {'not passed' if gate.status else 'passed'}", "", f"**{counts(gate)}**", ""]
    summary += [f"New: {_cell(gate.new.title)}  ", f"Old: {_cell(gate.old.title)}", ""]
    shown = [each for outcome in OUTCOMES[:-1] for each in gate.of(outcome)]
    summary += _table(shown)
    if gate.differences:
        summary += ["| What differs | Old | New |", "|---|---|---|"]
        for each in gate.differences:
            name = f"{each.what} ({each.hardware})" if each.hardware else each.what
            summary.append("| " + " | ".join(map(_cell, (name, ", ".join(each.old), ", ".join(each.new)))) + " |")
        summary.append("")
    summary += [f"- {_cell(caution)}" for side in (gate.new, gate.old) for caution in side.cautions]
    if ties := gate.of("tied"):
        summary += [f"<details><summary>{len(ties)} tied</summary>", "", *_table(ties), "</details>", ""]
    summary.append(f"{_guarantee(gate)}.")
    return "\n".join(summary) + "\n"


def _guarantee(gate: Gate) -> str:
    """What a tie may hide, and the intervals' guarantee."""
    return "; ".join(filter(None, (hidden_words(gate), family_words(gate))))


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
        "a_tie_may_hide": widest(gate),
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


def junit(gate: Gate, at: datetime | None = None) -> str:
    """The gate as JUnit XML: a suite for each kind of hardware and load, a case for each figure of a config.

    Regressed is a failure, not comparable an error. Elements and attributes are those that Ant's writer gives, in its
    order, which all readers take. `at` is when it was compared.
    """
    root = Element("testsuites")
    for number, (name, cases) in enumerate(_suites(gate)):
        suite = SubElement(
            root,
            "testsuite",
            {
                "name": _word(name),
                "package": "tokenpeak.gate",
                "id": str(number),
                "timestamp": f"{(at or datetime.now(UTC)):%Y-%m-%dT%H:%M:%S}",
                "hostname": gethostname() or "localhost",
                "tests": str(len(cases)),
                "failures": str(sum(case.outcome == "regressed" for case in cases)),
                "errors": str(sum(case.outcome == "not comparable" for case in cases)),
                "skipped": "0",
                "time": "0",
            },
        )
        properties = SubElement(suite, "properties")
        for key, value in _properties(gate):
            SubElement(properties, "property", {"name": _word(key), "value": _word(value)})
        for case in cases:
            _case(suite, name, case)
        SubElement(suite, "system-out").text = visible(_guarantee(gate))
        SubElement(suite, "system-err").text = ""
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suites(gate: Gate) -> Iterator[tuple[str, list[ConfigComparison]]]:
    suites: dict[str, list[ConfigComparison]] = {}
    for each in gate.comparisons:
        suites.setdefault(f"{each.hardware} · {each.place}", []).append(each)
    yield from suites.items()


def _properties(gate: Gate) -> Iterator[tuple[str, str]]:
    yield "new", gate.new.title
    yield "old", gate.old.title
    for each in gate.differences:
        yield f"{each.hardware} {each.what}".strip(), f"{', '.join(each.old)} → {', '.join(each.new)}"


def _case(suite: Element, name: str, comparison: ConfigComparison) -> None:
    case = SubElement(
        suite,
        "testcase",
        {"name": _word(f"{comparison.config} · {comparison.figure}"), "classname": _word(name), "time": "0"},
    )
    kind = {"regressed": "failure", "not comparable": "error"}.get(comparison.outcome)
    if kind is not None:
        words = visible(change_words(comparison))
        SubElement(case, kind, {"message": words, "type": comparison.outcome}).text = words


def _word(text: str) -> str:
    """Text of one line, as an attribute holds it, without what XML cannot hold."""
    return " ".join(visible(text).split())
