"""Somebody's archive has strings that a terminal obeys or a spreadsheet runs, for whoever queries what was loaded.

`tokenpeak sql` prints what psql found: no hidden character reaches the terminal, no line of it is a command of a CI
service, and no cell of its CSV begins as a formula, in whichever locale it is opened.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tokenpeak.cli import tokenpeak
from tokenpeak.node.machine.words import HIDDEN
from tokenpeak.spreadsheet import STARTS

CELLS = (
    "\x1b]0;owned\x07",
    "=HYPERLINK(1)",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "a;=1+1",
    "x\tb",
    'q"=1',
    "\u202egnp",
    "l\n::x::y",
)
NUMBERS = ("-1.5", "+3e10", "0", "")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a psql of this test's prints, whatever it is asked, on both of its streams."""
    text, program = tmp_path / "found", tmp_path / "psql"
    program.write_text(f"#!/bin/sh\ncat {text}\ncat {text} >&2\n")
    program.chmod(0o755)

    @contextmanager
    def opened(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(sweep_ids=lambda: ["s"], client=("", {}), description="")

    monkeypatch.setattr("tokenpeak.store.embedded.psql", lambda: program)
    monkeypatch.setattr("tokenpeak.store.database.choose", lambda: SimpleNamespace(folder=None))
    monkeypatch.setattr("tokenpeak.store.database.open_database", opened)
    return text


def test_no_cell_is_obeyed_or_run(found: Path) -> None:
    """Each cell is one cell that begins as no formula, and a number stays what it was."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([CELLS, NUMBERS])
    found.write_text(made.getvalue())

    done = CliRunner().invoke(tokenpeak, ["sql", "--format", "csv", "SELECT 1"], catch_exceptions=False)
    texts, numbers = csv.reader(io.StringIO(done.stdout, newline=""))

    assert [*NUMBERS] == numbers
    assert len(CELLS) == len(texts)
    assert not [text for text in texts if text.startswith(tuple(set(STARTS) - {"'"}))]
    assert ["'=HYPERLINK(1)", "'+1+1", "'-2+3", "'@SUM(1)"] == texts[1:5]
    assert '"a;=1+1"' in done.stdout, "or a locale's separator would begin a cell"
    for said in (done.stdout, done.stderr):
        assert not set(HIDDEN.findall(said)) - {"\t", "\n"}
        assert "\n::x" not in said


def test_a_table_hides_nothing(found: Path) -> None:
    """Controls of a table are written out by psql itself, and what turns text around by us."""
    found.write_text(" a | b\n---+---\n \u202egnp.exe | \x9b31m\n ::add-mask::x | y\n")

    done = CliRunner().invoke(tokenpeak, ["sql", "SELECT 1"], catch_exceptions=False)

    assert "\\u202egnp.exe" in done.stdout
    for said in (done.stdout, done.stderr):
        assert not set(HIDDEN.findall(said)) - {"\n"}
        assert " ::add" not in said
