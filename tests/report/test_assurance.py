"""An SLO that was held is stated with its confidence, wherever a page says that it was."""

import pytest

from archive_factory import make_archive
from tokenpeak.ranking.intervals import slo_confidence
from tokenpeak.records import RunRecord
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.blocks.metric_columns import confidence_words
from tokenpeak.report.trials.trial_page import slo_sentence
from tokenpeak.store.archive import Archive

CONFIDENCE = f"{confidence_words(slo_confidence(40, 40, 0.95))} confidence"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepView:
    """Two configs on an A100; all of the 40 requests of each run hold a p95 of TTFT and of TPOT."""
    path = tmp_path_factory.mktemp("swept") / "a"
    make_archive(path, gpus=["NVIDIA A100-SXM4-80GB"], axes={"max_num_seqs": [16, 64]}, replicates=2, seconds=3)
    return open_archive(path)


@pytest.fixture(scope="module")
def run(swept: SweepView) -> RunRecord:
    """A run of it."""
    return next(iter(Archive(swept.path).trials())).runs[0]


def test_trial_page_counts_requests_and_says_what_they_assure(run: RunRecord) -> None:
    """A run's sentence has each limit's count and confidence, and how many requests would be enough."""
    assert (
        f"SLO held: 40 of 40 within TTFT p95 ≤ 500 ms, {CONFIDENCE}; 40 of 40 within TPOT p95 ≤ 50 ms, {CONFIDENCE}. "
        "40 requests are too few for 95% confidence in a p95: it takes 59." == slo_sentence(run)
    )


def test_broken_slo_is_counted_without_a_confidence(run: RunRecord) -> None:
    """Where a limit was broken the counts say by how much."""
    summary = run.summary.model_copy(update={"within_limits": {"ttft_s_p95": 12, "tpot_s_p95": 40}})
    broken = run.model_copy(update={"slo_met": False, "summary": summary})

    assert slo_sentence(broken) == "SLO broken: 12 of 40 within TTFT p95 ≤ 500 ms; 40 of 40 within TPOT p95 ≤ 50 ms."
