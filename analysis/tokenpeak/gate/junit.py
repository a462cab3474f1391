"""A gate as JUnit XML: a suite for each kind of hardware and load, a case for each figure of a config.

Regressed is a failure, not comparable an error. Elements and attributes are those that Ant's writer gives, in its
order, which all readers take.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from socket import gethostname
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tokenpeak.gate.comparison import ConfigComparison, Gate
from tokenpeak.gate.text import change_words, family_words, name_of
from tokenpeak.terminal import visible


def junit(gate: Gate, at: datetime | None = None) -> str:
    """The document; `at` is when it was compared."""
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
        SubElement(suite, "system-out").text = visible(family_words(gate))
        SubElement(suite, "system-err").text = ""
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suites(gate: Gate) -> Iterator[tuple[str, list[ConfigComparison]]]:
    found: dict[str, list[ConfigComparison]] = {}
    for each in gate.comparisons:
        found.setdefault(f"{each.hardware} · {each.place}", []).append(each)
    yield from found.items()


def _properties(gate: Gate) -> Iterator[tuple[str, str]]:
    yield "new", name_of(gate.new)
    yield "old", name_of(gate.old)
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
        said = visible(change_words(comparison))
        SubElement(case, kind, {"message": said, "type": comparison.outcome}).text = said


def _word(text: str) -> str:
    """Text of one line, as an attribute holds it, without what XML cannot hold."""
    return " ".join(visible(text).split())
