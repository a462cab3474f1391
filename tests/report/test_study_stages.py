"""Study stages: what kind of config each is, and what one gains over another."""

from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.load import study_stages
from tokenpeak.report.load.study_stages import Reached, gain
from tokenpeak.report.site.build import build_site


def stand(holds: float | None, breaks: float | None) -> Reached:
    """A stage whose limit lies between these rates."""
    return Reached(
        stage="tuned",
        config_id="x",
        label="x",
        sweep_id="s",
        hardware="h",
        holds=holds,
        breaks=breaks,
        launches=1,
        sweep_runs=pl.DataFrame(),
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps of one study: the engine's defaults alone, then a tuned config."""
    folder = tmp_path_factory.mktemp("study")
    first = make_archive(
        folder / "20261119-220000-defaults-rig", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3, study="s"
    )
    for path in [first.path / "sweep.json", *first.path.glob("trials/*.json")]:
        text = path.read_text().replace('"name":"max_num_seqs=8"', '"name":"defaults"')
        path.write_text(text.replace('"choices":{"max_num_seqs":"8"}', '"choices":{}'))
    make_archive(
        folder / "20261120-220000-tuned-rig", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3, study="s"
    )
    return folder


def test_a_gain_has_a_least_and_a_most() -> None:
    """Limits that lie between rates differ by at least the inner and at most the outer two."""
    assert (0.5, 2.0) == gain(stand(2, 4), stand(6, 6))
    assert (-0.5, 1.0) == gain(stand(2, 4), stand(2, 4))
    assert (None, None) == gain(stand(None, None), stand(4, None))


@pytest.mark.e2e
def test_stages_are_those_of_the_whole_study(study: Path) -> None:
    """The load page of each sweep compares it with the others of its study, and says so in a sentence."""
    build_site([study], study / "site")
    pages = [path.read_text() for path in sorted((study / "site").glob("*/load.html"))]

    assert ["Stages compared"] * 2 == ["Stages compared" if "Stages compared" in page else "" for page in pages]
    assert all("From baseline to tuned, the highest rate within the SLO" in page for page in pages)


def test_another_workload_is_left_out(study: Path) -> None:
    """A sweep that asked something else is no stage of this one."""
    first, second = (open_archive(path) for path in sorted(study.glob("*-rig")))
    other = second.spec.model_copy(update={"slo": second.spec.slo.model_copy(update={"ttft_p95_ms": 1.0})})

    assert [second] == study_stages.comparable(first, [second], "short")
    assert [] == study_stages.comparable(first, [SweepView(**{**second.__dict__, "spec": other})], "short")
