"""Kinds of hardware side by side: what all GPUs of a node give together is shared out among them, and nothing else."""

import json
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak.report import open_archive
from tokenpeak.report.blocks import Table, plain
from tokenpeak.report.hardware import answer_hardware, side_by_side
from tokenpeak.report.ranking import rank
from tokenpeak.report.view import SweepView


def two_and_one(path: Path, objective: str) -> SweepView:
    """A sweep for this objective on a node of two GPUs and on one of one."""
    archive = make_archive(path, axes={"max_num_seqs": [8, 64]}, seconds=2)
    for file in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        file.write_text(file.read_text().replace("1x NVIDIA A100", "2x NVIDIA A100"))
    record = json.loads((archive.path / "sweep.json").read_text())
    record["nodes"][0]["gpus"] *= 2
    record["spec"]["objective"]["metric"] = objective
    (archive.path / "sweep.json").write_text(json.dumps(record))
    return open_archive(archive.path)


@pytest.mark.parametrize(
    ("objective", "whose", "share"),
    [
        ("output_tok_per_s", "tok/s per GPU,", 2),
        ("request_per_s", "req/s per GPU,", 2),
        ("ttft_s_p95", "s (time to first token p95),", 1),
        ("request_output_tok_per_s_mean", "tok/s per request (mean output speed of a request),", 1),
    ],
)
def test_only_what_a_node_gives_is_told_per_gpu(tmp_path: Path, objective: str, whose: str, share: int) -> None:
    """Throughputs are divided by the number of GPUs and say so; latencies and one request's speed are not."""
    view = two_and_one(tmp_path / "a", objective)
    bests = [float(str(best["objective"])) for hardware in view.hardware if (best := rank(view, hardware).best)]
    first, last = sorted([bests[0] / share, bests[1]], reverse=view.higher_is_better)
    words = plain(answer_hardware(view).parts)
    [table] = side_by_side(view)
    assert isinstance(table, Table)

    assert f" {whose} {first / last:.2f} times " in words
    assert ("Per GPU" in [column.title for column in table.columns]) == (share > 1)
