"""An SLO that was held is stated with its confidence, wherever a page says that it was."""

import pytest

from archive_factory import make_archive
from tokenpeak.ranking.intervals import slo_confidence
from tokenpeak.records import RunRecord
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.blocks.metric_columns import confidence_words
from tokenpeak.report.trials.trial_page import slo_sentence, window_sentence
from tokenpeak.spec.load import OpenLoad
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


def test_trial_page_says_what_throughput_is_over(run: RunRecord) -> None:
    """A closed loop's is of its steady window, beside the figure of the whole load, or of the whole load alone."""
    known = {"duration_s": 10.0, "output_tokens": 5000, "steady_from_s": 1.5, "steady_to_s": 8.25, "steady_waves": 2}
    windowed = run.model_copy(update={"summary": run.summary.model_copy(update=known)})
    before = run.model_copy(update={"summary": run.summary.model_copy(update={"steady_from_s": None})})

    assert window_sentence(windowed) == (
        "Throughput is from 1.5 to 8.25 s of 10 s, 2 waves of requests between ramp and drain; "
        "over the whole load it was 500 tok/s."
    )
    assert window_sentence(before) == "Throughput is over the whole load, ramp-up and drain included."
    assert not window_sentence(run.model_copy(update={"level": OpenLoad(rate_per_s=1, requests=1)}))
