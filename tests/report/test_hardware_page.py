"""The hardware page: what GPUs give together is shared out among them, and arrangements are compared all else equal."""

import json
import re
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report import node_table, open_archive, side_by_side
from tokenpeak.report.blocks.block import Table, plain
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView


def two_and_one(path: Path, objective: str, used: int) -> SweepView:
    """A sweep for this objective on a node of two GPUs, of which engines take so many, and on one of one."""
    archive = make_archive(path, axes={"max_num_seqs": [8, 64]}, seconds=2)
    for file in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        file.write_text(file.read_text().replace("1x NVIDIA A100", "2x NVIDIA A100"))
    record = json.loads((archive.path / "sweep.json").read_text())
    record["nodes"][0]["gpus"] *= 2
    for planned in record["plans"][0]["feasible"]:
        planned["config"]["flags"]["tensor_parallel_size"] = used
    record["spec"]["objective"]["metric"] = objective
    (archive.path / "sweep.json").write_text(json.dumps(record))
    return open_archive(archive.path)


@pytest.mark.parametrize(
    ("objective", "used", "whose", "share"),
    [
        ("output_tok_per_s", 2, "tok/s per GPU,", 2),
        ("output_tok_per_s", 1, "tok/s per GPU,", 1),
        ("request_per_s", 2, "req/s per GPU,", 2),
        ("ttft_s_p95", 2, "s (time to first token p95),", 1),
        ("request_output_tok_per_s_mean", 2, "tok/s per request (mean output speed of a request),", 1),
    ],
)
def test_only_what_gpus_give_together_is_shown_per_gpu(
    tmp_path: Path, objective: str, used: int, whose: str, share: int
) -> None:
    """Throughputs are divided by the GPUs that the engine takes and say so; latencies and a request's speed are not."""
    view = two_and_one(tmp_path / "a", objective, used)
    bests = [float(str(best["objective"])) for hardware in view.hardware if (best := rank(view, hardware).best)]
    first, last = sorted([bests[0] / share, bests[1]], reverse=view.higher_is_better)
    words = plain(side_by_side.answer_hardware(view).parts)
    [table] = side_by_side.side_by_side(view)
    assert isinstance(table, Table)

    assert f" {whose} {first / last:.2f} times " in words
    assert ("Per GPU" in [column.title for column in table.columns]) == (share > 1)


def test_other_models_are_no_comparison_of_hardware(tmp_path: Path) -> None:
    """Where each kind of hardware serves a model of its own, none is said to be faster than another."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8, 64]}, seconds=2)
    record = json.loads((archive.path / "sweep.json").read_text())
    record["spec"]["model"] = None
    same = plain(side_by_side.answer_hardware(open_archive(archive.path)).parts)
    for node, name in zip(record["nodes"], ("acme/a-7b", "acme/b-8b"), strict=True):
        node["model"] = {"name": name, "served_name": name}
    (archive.path / "sweep.json").write_text(json.dumps(record))
    other = plain(side_by_side.answer_hardware(open_archive(archive.path)).parts)

    assert " times " in same
    assert "Each kind of hardware serves a model of its own: what they give is no comparison of hardware." == other


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


def test_the_nodes_of_published_presets_are_described() -> None:
    """VRAM by the boards, and the processors and memory that the source states; a column that nobody fills is none."""
    view = open_archive(paths.ARCHIVES / "multi-gpu-presets")
    found = node_table.nodes_table(view)
    rows = {row[0]["text"]: [cell["text"] for cell in row[2:]] for row in found.rows}

    assert ["Node", "Hardware", "GPUs", "VRAM", "CPU cores", "Memory"] == [column.title for column in found.columns]
    assert ["8", "126", "120", "469"] == rows["gpu-xlarge"]
    assert ["2", "128", "30", "121"] == rows["mi210x2"]
    assert "NVLink" in str(node_table.nodes_table(open_archive(paths.ARCHIVES / "a100x8-llama70b")).payload())


def test_a_config_outside_the_grid_is_no_arrangement(tmp_path: Path) -> None:
    """Production has flags of its own and no axis: it is not pooled with the arrangements of the grid."""
    path = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"tensor_parallel_size": [1, 2, 4]}, seconds=3).path
    outside = max((path / "trials").glob("*.json"))
    outside.write_text(re.sub(r'"choices":{[^}]*}', '"choices":{}', outside.read_text()))
    sentence, table = side_by_side.arrangements(open_archive(path))
    assert isinstance(table, Table)

    assert "TP4" not in plain(sentence.parts)  # type: ignore[attr-defined]
    assert {("TP2", "1"), ("one GPU", "1")} == {(row[0]["text"], row[-1]["text"]) for row in table.rows}
