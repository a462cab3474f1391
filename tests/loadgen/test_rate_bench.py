"""The benchmark of the rate search: what it keeps of cases that have ended, and the bisection beside it."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import rate_search
from benchmarks.bisection import bisect
from benchmarks.rate_search import CaseResult
from tokenpeak.loadgen.queue_model import Timings
from tokenpeak.loadgen.rate_probe import ProbeAsked, ProbeSeen

KIND = "1 slot, deterministic"
ENDED = CaseResult(
    kind=KIND,
    seed=3,
    version=rate_search.version(),
    truth_per_s=20.0,
    capacity_per_s=30.0,
    rate_per_s=21.5,
    low_per_s=20.5,
    high_per_s=22.5,
    probes=5,
    duration_s=100.0,
    bisected_per_s=33.0,
    bisection_probes=9,
    bisection_s=200.0,
)


def kept(path: Path, *results: CaseResult) -> Path:
    path.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))
    return path


def test_ended_case_is_not_run_again(tmp_path: Path) -> None:
    """A case that stands in the file is returned as it stands."""
    results = kept(tmp_path / "results.jsonl", ENDED)

    assert [ENDED] == rate_search.cases(1, results, first_seed=3)


@pytest.mark.integration
def test_case_of_an_older_search_is_run_again(tmp_path: Path) -> None:
    """It is answered by the search of today, and that answer is kept."""
    results = kept(tmp_path / "results.jsonl", replace(ENDED, version="older"))
    (found,) = rate_search.cases(1, results, first_seed=3)

    assert abs(found.error) <= 0.05
    assert 0 < (found.bisected_per_s or 0) <= 1.5 * found.capacity_per_s
    assert asdict(found) == json.loads(results.read_text().splitlines()[-1])


def test_summary_counts_what_is_wrong() -> None:
    """Errors beyond 5%, answers above capacity and intervals without the truth are counted."""
    right = replace(ENDED, rate_per_s=20.5, low_per_s=19.5, bisected_per_s=20.0)
    search, bisection, intervals = rate_search.summary([ENDED, right])

    assert search.startswith("search: 1 of 2 within 5%, mean error +5.0%, largest +7.5%, 0 more than 1% above")
    assert bisection.startswith("bisection: 1 of 2 within 5%, mean error +32.5%, largest +65.0%, 1 more than 1% above")
    assert intervals.startswith("intervals: 1 of 2 hold the truth")


@pytest.mark.parametrize("holds_per_s", [7.3, 52.0])
def test_bisection_of_a_server_without_noise(holds_per_s: float) -> None:
    """It ends at most 5% below the rate up to which every probe holds."""

    def offer(asked: ProbeAsked) -> ProbeSeen:
        due = np.arange(asked.requests) / (asked.rate_per_s or 1.0)
        end = due + (0.1 if (asked.rate_per_s or 0) <= holds_per_s else 1.0)
        timings = Timings(due_s=due, first_s=end, last_s=end, tokens=np.ones(due.size))
        return ProbeSeen(asked=asked, timings=timings, duration_s=float(end[-1]))

    found = bisect(offer, [("ttft_s", 99, 0.5)])

    assert holds_per_s / 1.05 <= (found.rate_per_s or 0) <= holds_per_s
