"""What is read off production's counts, against a server that knows what it was asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.loadgen.traffic.arrivals import burstiness
from tokenpeak.loadgen.traffic.traffic import Traffic, as_text, traffic_of
from tokenpeak.records import Series
from tokenpeak.spec.workload import TraceWorkload

BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, np.inf]
"""vLLM's for lengths: 1, 2, 5 in each power of ten."""
STEP_S = 0.02
SPAN_S = 600.0


class Truth:
    """Requests that only this server knows: chats with a long beginning in common, and short questions without one."""

    def __init__(self, rate_per_s: float, shape: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        number = int(rate_per_s * SPAN_S * 1.5)
        at_s = np.cumsum(random.gamma(shape, 1 / (rate_per_s * shape), number))
        self.at_s: NDArray[np.float64] = at_s[at_s < SPAN_S]
        number = len(self.at_s)
        is_chat = random.random(number) < 0.6
        self.given = np.where(
            is_chat, 640 + random.lognormal(5, 0.6, number), 16 + random.lognormal(4, 0.8, number)
        ).astype(int)
        self.cached = np.where(is_chat, 640, 0)
        self.made = np.where(
            is_chat, 20 + self.given / 8 + random.exponential(30, number), random.lognormal(5, 0.4, number)
        ).astype(int)
        self.end_s = self.at_s + self.made * STEP_S

    def counts(self, period_s: float) -> Series:
        """What a page shows each `period_s`."""
        t_s = np.arange(0, SPAN_S, period_s)
        begun = np.searchsorted(np.sort(self.at_s), t_s, side="right")
        by_end = np.argsort(self.end_s)
        ended = np.searchsorted(self.end_s[by_end], t_s, side="right")

        def total(amounts: NDArray[np.int64], upto: NDArray[np.int64]) -> tuple[float, ...]:
            return tuple(np.concatenate([[0.0], np.cumsum(amounts)])[upto].tolist())

        return Series(
            t_s=tuple((1.7e9 + t_s).tolist()),
            columns={
                "requests_finished": tuple(ended.astype(float).tolist()),
                "prompts": tuple(ended.astype(float).tolist()),
                "prompts_tokens": total(self.given[by_end], ended),
                "answers_tokens": total(self.made[by_end], ended),
                "queries": total(self.given, begun),
                "hits": total(self.cached, begun),
                "running": tuple((begun - ended).astype(float).tolist()),
                "waiting": (0.0,) * len(t_s),
            },
        )

    def histograms(self) -> Series:
        """Buckets before and after."""
        ended = self.end_s < SPAN_S
        return Series(
            t_s=(0.0, SPAN_S),
            columns={
                f"{name}_le:{'+Inf' if np.isinf(bound) else bound}": (0.0, float((values[ended] <= bound).sum()))
                for name, values in (("prompts_tokens", self.given), ("answers_tokens", self.made))
                for bound in BUCKETS
            },
        )


def observed(truth: Truth, period_s: float) -> Traffic:
    return traffic_of(truth.counts(period_s), truth.histograms(), node="n", model="m")


def columns(traffic: Traffic) -> NDArray[np.int64]:
    return np.array([(each.input_tokens, each.cached_tokens, each.output_tokens) for each in traffic.requests]).T


def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Kolmogorov's distance of two samples."""
    return float(stats.ks_2samp(one, other, method="asymp").statistic)


@pytest.mark.parametrize(
    ("rate_per_s", "shape", "period_s"), [(1.0, 1.0, 0.2), (4.0, 0.3, 0.2), (4.0, 1.0, 0.5), (12.0, 1.0, 0.1)]
)
def test_lengths_as_they_were(rate_per_s: float, shape: float, period_s: float) -> None:
    """Lengths, what is cached, and how both go with answers, by Kolmogorov's distance from the truth."""
    truth = Truth(rate_per_s, shape, seed=3)
    traffic = observed(truth, period_s)
    given, cached, made = columns(traffic)

    assert traffic.figures.lengths_together
    assert distance(given, truth.given) < 0.05
    assert distance(made, truth.made) < 0.05
    assert distance(cached, truth.cached) < 0.05
    assert cached.sum() / given.sum() == pytest.approx(truth.cached.sum() / truth.given.sum(), abs=0.02)
    assert stats.spearmanr(given, made)[0] == pytest.approx(stats.spearmanr(truth.given, truth.made)[0], abs=0.1)


def test_lengths_of_a_busy_server() -> None:
    """Where no request ends alone, lengths are each drawn from buckets, which is said; the means are right."""
    truth = Truth(60.0, 1.0, seed=4)
    traffic = observed(truth, 1.0)
    given, cached, made = columns(traffic)

    assert not traffic.figures.lengths_together
    assert given.mean() == pytest.approx(truth.given.mean(), rel=0.05)
    assert made.mean() == pytest.approx(truth.made.mean(), rel=0.05)
    assert cached.sum() / given.sum() == pytest.approx(truth.cached.sum() / truth.given.sum(), abs=0.02)
    assert distance(given, truth.given) < 0.2


@pytest.mark.parametrize("shape", [0.2, 1.0, 5.0])
def test_arrivals_as_they_were(shape: float) -> None:
    """Arrivals are within a reading of the true ones, as bursty, and as close together."""
    truth = Truth(5.0, shape, seed=5)
    traffic = observed(truth, 0.1)
    at_s = np.array([each.timestamp_s for each in traffic.requests])
    true = truth.at_s[truth.at_s > 0][: len(at_s)]

    assert np.abs(at_s - true[-len(at_s) :]).max() < 0.3
    assert traffic.figures.rate_per_s == pytest.approx(len(truth.at_s) / SPAN_S, rel=0.02)
    assert traffic.figures.burstiness == pytest.approx(shape, rel=0.4)
    # The file's times are of 0.1 ms: which of two shorter gaps is shorter, nobody sees.
    assert distance(np.maximum(np.diff(at_s), 0.005), np.maximum(np.diff(truth.at_s), 0.005)) < 0.1


def test_bursts_between_two_readings() -> None:
    """Where readings are far apart, gaps that are shorter are still as in truth: a burst waits for itself."""
    truth = Truth(5.0, 0.4, seed=6)
    gaps_s = np.diff([each.timestamp_s for each in observed(truth, 0.5).requests])

    assert distance(gaps_s, np.diff(truth.at_s)) < 0.06


def test_a_day_is_no_burst() -> None:
    """A rate that rises slowly is the day's shape: its arrivals are as Poisson's."""
    random = np.random.default_rng(6)
    at_s = np.sort(3600 * np.sqrt(random.random(20_000)))

    assert burstiness(at_s, 3600.0) == pytest.approx(1.0, abs=0.1)


def test_file_is_a_trace(tmp_path: Path) -> None:
    """What is written is replayed as it is, with as much of each prompt in common as was cached."""
    traffic = observed(Truth(2.0, 1.0, seed=9), 0.2)
    path = tmp_path / "traffic.json"
    path.write_text(as_text(traffic))
    trace = read_trace(TraceWorkload(name="x", path=str(path)))

    assert [(each.input_tokens, each.output_tokens) for each in trace.entries] == [
        (each.input_tokens, each.output_tokens) for each in traffic.requests
    ]
    assert trace.prefix_hit_rate(16) == pytest.approx(traffic.figures.prefix_hit_rate, abs=0.02)


def test_restart_of_production() -> None:
    """Counts that fall are of an engine that began again: what was before is left out, and nothing is negative."""
    truth = Truth(2.0, 1.0, seed=7)
    counts = truth.counts(0.2)
    half = len(counts.t_s) // 2
    again: dict[str, tuple[float | None, ...]] = {}
    for name, column in counts.columns.items():
        values = np.array(column, dtype=float)
        values[half:] -= 0.0 if name in ("running", "waiting") else values[half]
        again[name] = tuple(values.tolist())
    traffic = traffic_of(Series(t_s=counts.t_s, columns=again), truth.histograms(), node="n", model="m")

    assert traffic.seconds == pytest.approx(SPAN_S / 2, rel=0.01)
    assert min(each.input_tokens for each in traffic.requests) > 0


def test_little_traffic_is_said() -> None:
    """What cannot be tuned for is a sentence."""
    truth = Truth(0.02, 1.0, seed=8)
    with pytest.raises(WorkloadError, match="Observe it for longer"):
        observed(truth, 0.5)


def test_metrics_that_are_missing_are_named() -> None:
    """Production without statistics says which are missing."""
    with pytest.raises(WorkloadError, match=r"prompts_tokens.*--disable-log-stats"):
        traffic_of(Series(t_s=(0.0, 1.0), columns={}), Series(), node="n", model=None)
