"""What the mutants' shares and lists are made of, without a mutant."""

from pathlib import Path

import pytest
from tests.mutants.run import folders, summary
from tests.mutants.sample import PACKAGES, ROOT, Mutant, applied, changed, read_sample

MODULE = "analysis/tokenpeak/ranking/ties.py"


def test_a_stale_mutant_counts_nowhere() -> None:
    """Killed are those that a test noticed; a stale one is no part of the share."""
    mutants = [
        Mutant(path=MODULE, operator="core/AddNot", occurrence=number, line=7, before="if a:", after="if not a:")
        for number in range(4)
    ]
    verdicts = {mutants[0].id: "killed", mutants[1].id: "survived", mutants[2].id: "stale"}

    lines = summary(mutants, verdicts).splitlines()

    assert ["all", "2", "1", "50%"] == next(line for line in lines if line.startswith("all")).split()[:4]
    assert f"survived: {MODULE}:7: if a: -> if not a:" in lines


def test_a_mutant_whose_line_changed_is_stale(tmp_path: Path) -> None:
    """Neither another line in its place nor a module that is gone is mutated."""
    mutant = Mutant(
        path=MODULE, operator="core/NumberReplacer", occurrence=0, line=1, before="LIMIT = 3", after="LIMIT =  4"
    )
    (tmp_path / MODULE).parent.mkdir(parents=True)
    (tmp_path / MODULE).write_text("LIMIT = 5\n")

    assert applied(mutant, tmp_path) is None
    (tmp_path / MODULE).unlink()
    assert applied(mutant, tmp_path) is None


@pytest.mark.parametrize(
    ("mutated", "expected"), [("a\nB\nc", (2, "b", "B")), ("a\nc", (2, "b", "")), ("A\nB\nc", (1, "a\nb", "A\nB"))]
)
def test_what_changed(mutated: str, expected: tuple[int, str, str]) -> None:
    """The lines from the first that differs to the last, before and after; a line that is gone has no text."""
    assert expected == changed("a\nb\nc", mutated)


def test_the_sample_is_as_it_was_drawn() -> None:
    """Three hundred mutants with different names, of packages whose tests are known."""
    sample = read_sample()

    assert 300 == len({mutant.id for mutant in sample})
    assert {mutant.package for mutant in sample} <= set(PACKAGES)
    assert all((ROOT / folder).is_dir() for package in PACKAGES for folder in folders(package))
