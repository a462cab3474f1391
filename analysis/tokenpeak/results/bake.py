"""Bake of an apply: production's own metrics after it against the same time before, each from cumulative counts.

A window is cut into the spans between its readings. A mean is the ratio of sums over the spans, and its variance is
that of a ratio estimate over them (Cochran, Sampling Techniques, 6.4), so that requests that queue behind one another
do not count as independent ones. Slower is what is so at 99.9% and by more than the margin.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenpeak.node.protocol.parts import Series
from tokenpeak.ranking.intervals import t_critical
from tokenpeak.records.sweep import Bake, BakeFigure, BakeStatus

CONFIDENCE = 0.999
"""Of each interval, two-sided: four are looked at, and one end of each."""
FEWEST_REQUESTS = 30
FEWEST_SPANS = 5
SPANS = 30
"""Into so many a window is cut."""
LEAST_S = {"ttft": 0.005, "tpot": 0.0005}
"""A mean that is worse by less is not slower, whatever its share."""
TAIL = 0.10
TAIL_GROWS_BY = 0.05
"""The slowest tenth of before; slower when this much more of the requests are beyond its bound."""
OTHER_TRAFFIC = 1.5
"""How many times more or less of the traffic before is no more the same traffic."""
FAILED_LEVEL = 0.005
_SAID = {"ttft": "time to first token", "tpot": "time per output token"}


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Readings of production over a while; `ended` says why they end early."""

    readings: Series
    ended: str | None = None
    load_sent: int = 0
    load_failed: int = 0

    @property
    def duration_s(self) -> float:
        """From the first reading to the last."""
        return self.readings.t_s[-1] - self.readings.t_s[0] if self.readings.t_s else 0.0

    @property
    def requests(self) -> float:
        """How many had their first token."""
        return self.grew("ttft_count")

    def grew(self, column: str) -> float:
        """By how much a count grew; 0 where it is not there."""
        values = self._known(column)
        return values[-1] - values[0] if len(values) > 1 else 0.0

    def spans(self, *columns: str) -> list[tuple[float, ...]]:
        """By how much each of the columns grew from reading to reading."""
        values = [self.readings.columns.get(column) or () for column in columns]
        rows = [row for row in zip(*values, strict=True) if None not in row]
        return [
            tuple(float(after) - float(before) for before, after in zip(one, other, strict=True))
            for one, other in pairwise(rows)
        ]

    @property
    def restarted(self) -> bool:
        """Whether a count fell: production was started again."""
        names = ("ttft_count", "prompt_tokens", "generation_tokens")
        return any(after < before for name in names for before, after in pairwise(self._known(name)))

    def _known(self, column: str) -> list[float]:
        return [value for value in self.readings.columns.get(column) or () if value is not None]


def joined(first: Observed, second: Observed) -> Observed:
    """Two windows of one production, one after the other, as one."""
    names = {*first.readings.columns, *second.readings.columns}

    def column(window: Observed, name: str) -> tuple[float | None, ...]:
        return window.readings.columns.get(name) or (None,) * len(window.readings.t_s)

    return Observed(
        readings=Series(
            t_s=(*first.readings.t_s, *second.readings.t_s),
            columns={name: (*column(first, name), *column(second, name)) for name in names},
        ),
        ended=first.ended or second.ended,
        load_sent=first.load_sent + second.load_sent,
        load_failed=first.load_failed + second.load_failed,
    )


def judge(before: Observed, after: Observed, *, margin: float, test_load: int = 0) -> Bake:
    """Whether production is worse than it was; `margin` is by what share a mean must be longer to count."""
    figures = [_failed(before, after)]
    for metric in ("ttft", "tpot"):
        figures += [each for each in (_mean(before, after, metric), _tail(before, after, metric)) if each is not None]

    def bake(status: BakeStatus, reason: str) -> Bake:
        return Bake(
            status=status,
            reason=reason,
            figures=tuple(figures),
            before_s=round(before.duration_s, 3),
            after_s=round(after.duration_s, 3),
            test_load=test_load,
        )

    if after.ended is not None:
        return bake("failing", after.ended)
    if after.restarted:
        return bake("failing", "Production was started again during the bake.")
    if _fails_more(figures[0]):
        return bake("failing", f"{_share(figures[0].after)} of requests failed, {_share(figures[0].before)} before.")
    requests = [window.requests for window in (before, after)]
    if min(requests) < FEWEST_REQUESTS:
        words = f"{requests[0]:.0f} requests before and {requests[1]:.0f} after; {FEWEST_REQUESTS} of each are needed."
        return bake("not_judged", f"Too little traffic: {words}")
    traffic = _traffic(before, after)
    worse = [each for each in figures[1:] if _is_worse(each, margin)]
    shown = [each for each in worse if each.low is not None and each.low > 1.0]
    if shown and (more := next((name for name, ratio in traffic.items() if ratio > OTHER_TRAFFIC), None)):
        return bake("not_judged", f"It is slower, and the traffic is another: {traffic[more]:.1f} times the {more}.")
    if shown:
        return bake("slower", f"{_words(shown[0])[0].upper()}{_words(shown[0])[1:]}.")
    if less := next((name for name, ratio in traffic.items() if ratio < 1 / OTHER_TRAFFIC), None):
        return bake("not_judged", f"The traffic is another: {traffic[less]:.1f} times the {less} of before.")
    if worse:
        return bake("not_judged", f"Too few requests to say whether {_words(worse[0])} is more than chance.")
    means = "; ".join(_words(each) for each in figures if each.name.endswith("mean"))
    return bake("passed", f"No slower than before: {means or 'no latency is measured'}.")


def _is_worse(figure: BakeFigure, margin: float) -> bool:
    """Whether the estimate is worse by more than what counts."""
    if figure.name.endswith("tail"):
        return figure.after - figure.before > TAIL_GROWS_BY
    least_s = LEAST_S[figure.name.partition("_")[0]]
    return figure.after > figure.before * (1 + margin) and figure.after - figure.before > least_s


def _mean(before: Observed, after: Observed, metric: str) -> BakeFigure | None:
    sides = [_ratio(window.spans(f"{metric}_sum", f"{metric}_count")) for window in (before, after)]
    return _figure(f"{metric}_mean", sides)


def _tail(before: Observed, after: Observed, metric: str) -> BakeFigure | None:
    """The share of requests beyond the bound that the slowest tenth of before had."""
    total = before.grew(f"{metric}_count")
    prefix = f"{metric}_le:"
    bounds = sorted(
        (float(name.removeprefix(prefix)), name)
        for name in before.readings.columns
        if name.startswith(prefix) and not name.endswith("+Inf")
    )
    column = next((name for _, name in bounds if total > 0 and 1 - before.grew(name) / total <= TAIL), None)
    if column is None or column not in after.readings.columns:
        return None
    sides = []
    for window in (before, after):
        spans = [(count - within, count) for count, within in window.spans(f"{metric}_count", column)]
        sides.append(_ratio(spans))
    return _figure(f"{metric}_tail", sides)


@dataclass(frozen=True)
class _Ratio:
    """A ratio of sums over spans, its variance, and the degrees of freedom."""

    value: float
    variance: float
    freedom: float
    n: float


def _ratio(spans: Sequence[tuple[float, ...]]) -> _Ratio | None:
    """Of sums over counts; None where there are too few spans with anything in them."""
    filled = [(amount, count) for amount, count in _thinned(spans) if count > 0]
    n = sum(count for _, count in filled)
    if len(filled) < FEWEST_SPANS:
        return None
    value = sum(amount for amount, _ in filled) / n
    squares = sum((amount - value * count) ** 2 for amount, count in filled)
    k = len(filled)
    return _Ratio(value, squares * k / (k - 1) / n**2, k - 1.0, n)


def _thinned(spans: Sequence[tuple[float, ...]]) -> list[tuple[float, float]]:
    """The spans in about SPANS longer ones: short ones depend on each other."""
    size = max(1, len(spans) // SPANS)
    parts = [spans[start : start + size] for start in range(0, len(spans), size)]
    return [(sum(one[0] for one in part), sum(one[1] for one in part)) for part in parts]


def _figure(name: str, sides: Sequence[_Ratio | None]) -> BakeFigure | None:
    before, after = sides
    if before is None or after is None:
        return None
    low = high = ratio = None
    if before.value > 0 and after.value > 0:
        ratio = after.value / before.value
        parts = [(one.variance / one.value**2, one.freedom) for one in (before, after)]
        total = sum(part for part, _ in parts)
        if total > 0:
            freedom = total**2 / sum(part**2 / freedom for part, freedom in parts)
            half = t_critical(freedom, CONFIDENCE) * math.sqrt(total)
            low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return BakeFigure.model_validate(
        {
            "name": name,
            "before": before.value,
            "after": after.value,
            "ratio": ratio,
            "low": low,
            "high": high,
            "n_before": before.n,
            "n_after": after.n,
        }
    )


def _failed(before: Observed, after: Observed) -> BakeFigure:
    counts = [_failures(window) for window in (before, after)]
    (failed_before, n_before), (failed_after, n_after) = counts
    return BakeFigure(
        name="failed",
        before=failed_before / n_before if n_before else 0.0,
        after=failed_after / n_after if n_after else 0.0,
        ratio=None,
        low=None,
        high=None,
        n_before=n_before,
        n_after=n_after,
    )


def _failures(window: Observed) -> tuple[float, float]:
    """Failed requests and all: by the engine's count, the server's, and the test load's own."""
    ended = {name: window.grew(name) for name in window.readings.columns if name.startswith("finished:")}
    failed = ended.get("finished:error", 0.0) + window.grew("http_5xx")
    lost = max(0.0, window.load_failed - failed)
    return failed + lost, sum(ended.values()) + window.grew("http_5xx") + lost


def _fails_more(figure: BakeFigure) -> bool:
    """Whether more requests fail than before, by the exact test of a two-by-two table (Fisher)."""
    failed = [round(figure.before * figure.n_before), round(figure.after * figure.n_after)]
    n = [round(figure.n_before), round(figure.n_after)]
    if failed[1] == 0 or not n[1] or figure.after <= figure.before:
        return False
    if not n[0]:
        return True
    from scipy.stats import hypergeom

    return float(hypergeom.sf(failed[1] - 1, sum(n), sum(failed), n[1])) < FAILED_LEVEL


def _traffic(before: Observed, after: Observed) -> Mapping[str, float]:
    """How the traffic after is to that before: requests a second, and tokens of a request."""
    ratios = {}
    counts = [window.grew("ttft_count") for window in (before, after)]
    spans_s = [window.duration_s for window in (before, after)]
    if all(counts) and all(spans_s):
        ratios["requests"] = (counts[1] / spans_s[1]) / (counts[0] / spans_s[0])
        for column, words in (("prompt_tokens", "prompt tokens"), ("generation_tokens", "output tokens")):
            tokens = [window.grew(column) / count for window, count in zip((before, after), counts, strict=True)]
            if all(tokens):
                ratios[words] = tokens[1] / tokens[0]
    return ratios


def _words(figure: BakeFigure) -> str:
    """A figure in words, with its interval."""
    metric, _, kind = figure.name.partition("_")
    if kind == "tail":
        return f"{_share(figure.after)} of requests beyond the {_SAID[metric]} of the slowest {_share(figure.before)}"
    bounds = "" if figure.low is None else f" ({figure.low:.2f} to {figure.high:.2f})"
    return f"the {_SAID[metric]} is {figure.after / figure.before:.2f} times that of before{bounds}"


def _share(value: float) -> str:
    return f"{value:.1%}"
