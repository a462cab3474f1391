"""Quality on the ranking page: a column, a figure of speed against quality, and the answers that differ most."""

import pytest

from archive_factory import make_archive
from tokenpeak.records.quality import AnswersQuality, QualityExample, QualityInterval, QualityVerdict, SweepQuality
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.quality import compared, speed_against_quality
from tokenpeak.report.ranking.standings import Ranking, rank
from tokenpeak.report.view import SweepView

EXAMPLE = QualityExample(
    name="arithmetic-1",
    kind="arithmetic",
    question="2+3=",
    reference_answer="5",
    answer="6",
    kl_nats=1.5,
    right=False,
    reference_right=True,
)


def interval(value: float) -> QualityInterval:
    return QualityInterval(estimate=value, low=value / 2, high=value * 2)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepView, Ranking]:
    """A sweep of four configs: the slowest is the reference, one passed, one is unknown, and the fastest failed."""
    archive = make_archive(
        tmp_path_factory.mktemp("a") / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 16, 32, 64]}, seconds=3
    )
    for path in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        # Of a slow board: limits that it holds.
        text = path.read_text().replace('"ttft_p95_ms":500.0', '"ttft_p95_ms":9000.0')
        text = text.replace('"tpot_p95_ms":50.0', '"tpot_p95_ms":900.0').replace('"slo_met":false', '"slo_met":true')
        path.write_text(text)
    order = sorted(rank(open_archive(archive.path), "1x NVIDIA L4").frame.iter_rows(named=True), key=_objective)
    statuses = ("pass", "pass", "unknown", "fail")
    record = SweepQuality(
        sweep_id=archive.read_sweep().sweep_id,
        references={"1x NVIDIA L4": "the slowest (declared)"},
        verdicts=tuple(
            AnswersQuality(
                hardware="1x NVIDIA L4",
                answers=row["config_id"],
                config_ids=(row["config_id"],),
                trial_ids=(row["trial_id"],),
                is_reference=place == 0,
                changes=() if place == 0 else (f"change {place}",),
                verdict=QualityVerdict(
                    status=status,
                    reason=f"reason {place}",
                    margin_nats=0.02,
                    kl=interval(0.001 * 4**place) if place else None,
                    log_ratio=interval(0.001) if place else None,
                    examples=(EXAMPLE,) if status == "fail" else (),
                ),
            )
            for place, (row, status) in enumerate(zip(order, statuses, strict=True))
        ),
    )
    archive.write_quality(record)
    view = open_archive(archive.path)
    return view, rank(view, "1x NVIDIA L4")


def _objective(row: dict[str, object]) -> float:
    assert isinstance(row["objective"], float)
    return row["objective"]


def test_only_what_passed_is_ranked_and_all_have_their_speed(shown: tuple[SweepView, Ranking]) -> None:
    """Two configs have a rank; the unknown and the failed one are listed with what they would give, and why not."""
    _, ranked = shown
    by_quality = {row["quality"]: row for row in ranked.frame.iter_rows(named=True)}

    assert 2 == ranked.frame["rank"].drop_nulls().len()
    for status in ("fail", "unknown"):
        assert by_quality[status]["rank"] is None
        assert by_quality[status]["objective_unproven"] > by_quality["pass"]["objective"]
    assert ranked.chosen is not None
    assert "pass" == ranked.chosen["quality"]
    assert ranked.baseline is None or ranked.baseline.config_id != by_quality["fail"]["config_id"]


def test_figure_marks_what_did_not_pass(shown: tuple[SweepView, Ranking]) -> None:
    """Every group is a mark with its verdict; the front holds only what passed."""
    view, ranked = shown
    rows = compared(view, ranked)
    figure = speed_against_quality(view, ranked)

    assert ["fail", "pass", "pass", "unknown"] == sorted(rows["quality"])
    assert {"pass"} == set(rows.filter(rows["front"])["quality"])
    assert figure is not None
    assert "Crosses failed" in figure.caption
    assert 4 == len(figure.data.rows)
