"""Parallelism: arrangements are named in a word and compared only where all else is equal."""

import re
from pathlib import Path

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report import open_archive, side_by_side
from tokenpeak.report.blocks.block import Table, plain


def test_tensor_against_pipeline_of_a_published_sweep() -> None:
    """Of the published runs only those with one prompt differ in nothing but parallelism: 51.63 ÷ 13.09 tok/s."""
    sentence, table = side_by_side.arrangements(open_archive(paths.ARCHIVES / "a100x8-llama70b"))
    assert isinstance(table, Table)

    assert [("TP8", "3.94"), ("TP2 × PP4", "1.00")] == [(row[0]["text"], row[4]["text"]) for row in table.rows]
    assert "TP8 gives 3.94 times the output of TP2 × PP4" in plain(sentence.parts)  # type: ignore[attr-defined]


def test_tensor_against_pipeline_of_published_presets() -> None:
    """On two GPUs tensor parallel leads on all three presets; one GPU shows how runs vary."""
    sentence, table = side_by_side.of_presets(open_archive(paths.ARCHIVES / "multi-gpu-presets"))

    assert "+11% to +25% output over pipeline parallel (3 presets" in plain(sentence.parts)  # type: ignore[attr-defined]
    assert "H100X2" in str(table.payload())


def test_a_config_outside_the_grid_is_no_arrangement(tmp_path: Path) -> None:
    """Production has flags of its own and no axis: it is not pooled with the arrangements of the grid."""
    path = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"tensor_parallel_size": [1, 2, 4]}, seconds=3).path
    outside = max((path / "trials").glob("*.json"))
    outside.write_text(re.sub(r'"choices":{[^}]*}', '"choices":{}', outside.read_text()))
    sentence, table = side_by_side.arrangements(open_archive(path))
    assert isinstance(table, Table)

    assert "TP4" not in plain(sentence.parts)  # type: ignore[attr-defined]
    assert {("TP2", "1"), ("one GPU", "1")} == {(row[0]["text"], row[-1]["text"]) for row in table.rows}
