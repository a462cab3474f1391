"""What the mutants' shares and lists are made of, without a mutant."""

from pathlib import Path

import pytest
from tests.mutants.coverage_map import CoverageMap, noticing, read_map
from tests.mutants.sample import PACKAGES, Mutant, applied, changed, read_sample
from tests.mutants.summary import Result, summary

MODULE = "analysis/tokenpeak/ranking/ties.py"
SOURCE = """LIMIT = 3


def least(values):
    if not values:
        return LIMIT
    return min(
        values
    )
"""
MUTANT = Mutant(
    path=MODULE, operator="core/NumberReplacer", occurrence=0, line=1, before="LIMIT = 3", after="LIMIT =  4"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / MODULE).parent.mkdir(parents=True)
    (tmp_path / MODULE).write_text(SOURCE)
    return tmp_path


def test_a_stale_mutant_counts_nowhere() -> None:
    """Killed are those that a test noticed or hung on; a stale one, and another revision's, is no part of the share."""
    mutants = [
        Mutant(path=MODULE, operator="core/AddNot", occurrence=number, line=7, before="if a:", after="if not a:")
        for number in range(5)
    ]
    verdicts = ["killed", "timed out", "survived", "stale"]
    results = [
        Result(mutant=mutant.id, revision="4f2a9c", verdict=verdict)
        for mutant, verdict in zip(mutants, verdicts, strict=False)
    ]

    said = summary(mutants, results).splitlines()

    assert ["all", "3", "2", "67%"] == next(line for line in said if line.startswith("all")).split()[:4]
    assert "1 of 5 mutants have no result yet." in said
    assert ["survived:", f"  {MODULE}:7: if a: -> if not a:"] == said[said.index("survived:") :][:2]


def test_a_mutant_whose_line_changed_is_stale(tree: Path) -> None:
    """Neither another line in its place nor a module that is gone is mutated."""
    (tree / MODULE).write_text(SOURCE.replace("LIMIT = 3", "LIMIT = 5"))

    assert applied(MUTANT, tree) is None
    (tree / MODULE).unlink()
    assert applied(MUTANT, tree) is None


@pytest.mark.parametrize(
    ("mutated", "expected"),
    [
        ("a\nB\nc", (2, "b", "B")),
        ("a\nc", (2, "b", "")),
        ("A\nB\nc", (1, "a\nb", "A\nB")),
    ],
)
def test_what_changed(mutated: str, expected: tuple[int, str, str]) -> None:
    """The lines from the first that differs to the last, before and after; a line that is gone has no text."""
    assert expected == changed("a\nb\nc", mutated)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (8, ["tests/c.py::shares", "tests/b.py::slow", "tests/b.py::sets_up"]),
        (1, ["tests/a.py::quick", "tests/c.py::shares", "tests/b.py::slow", "tests/b.py::sets_up"]),
    ],
)
def test_which_tests_may_notice(tree: Path, line: int, expected: list[str]) -> None:
    """A function's line has the tests that run its statement, a constant those of any function; then their files'.

    What makes a fixture that is shared runs for each test that uses it.
    """
    lines = {
        MODULE: {
            "tests/a.py::quick": 0b1100000,
            "tests/b.py::slow": 0b10000000,
            "tests/b.py::beyond": 0b10000000,
            "tests/d.py::imports": 0b10,
            "tests::site": 0b1000000000,
        }
    }
    seconds = dict.fromkeys(["tests/a.py::quick", "tests/c.py::shares", "tests/d.py::imports"], 0.1)
    seconds |= {"tests/b.py::slow": 2.0, "tests/b.py::sets_up": 1.0, "tests/b.py::beyond": 9.0}
    CoverageMap(seconds=seconds, lines=lines, users={"tests::site": ["tests/c.py::shares"]}).write(tree / "map.json.gz")

    assert (expected, True) == noticing(read_map(tree / "map.json.gz"), tree, MODULE, {line}, 5.0)


def test_the_sample_is_as_it_was_drawn() -> None:
    """Three hundred mutants with different names, of the packages that are sampled."""
    sample = read_sample()

    assert 300 == len({mutant.id for mutant in sample})
    assert {mutant.package for mutant in sample} <= set(PACKAGES)
