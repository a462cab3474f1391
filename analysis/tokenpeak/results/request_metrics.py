"""Metrics of single requests, as expressions over their columns, and whether a run's percentiles hold an SLO.

A metric over requests is declared in `metrics.py`, and its formula here. That of gaps between tokens is over gaps.
NumPy is not needed, so that an archive is opened, and judged under another SLO, without it.
"""

from collections.abc import Callable

import polars as pl

from tokenpeak.records import Distribution, RunRecord, RunSummary
from tokenpeak.spec.slo import Slo, requests_to_see

_LAST, _TOKENS = pl.col("last_token_s"), pl.col("output_tokens")

REQUEST_METRICS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "ttft_s": lambda began: pl.col("first_token_s") - began,
    "ttfat_s": lambda began: pl.col("first_answer_s") - began,
    "tpot_s": lambda _: pl.when(_TOKENS > 1).then((_LAST - pl.col("first_token_s")) / (_TOKENS - 1)),
    "latency_s": lambda began: _LAST - began,
    "request_output_tok_per_s": lambda began: _TOKENS / (_LAST - began),
    "request_input_tok_per_s": lambda began: pl.col("input_tokens") / (_LAST - began),
}
"""Metric → its value by when the request began to count: when it was due (open loop) or sent (closed loop)."""


def slo_met(summary: RunSummary, slo: Slo) -> bool | None:
    """Whether every limit held; failed requests count as violations. None: no limits, or too few requests to decide."""
    limits = slo.limits()
    sent, failed = summary.requests_sent, summary.requests_failed or 0
    if not limits or not sent:
        return None
    decided = True
    for metric, percentile, limit in limits:
        distribution: Distribution = getattr(summary, metric)
        value = getattr(distribution, percentile)
        # Answers of one token have no TPOT and no gaps, so none that is too long.
        if (value is not None and value > limit) or summary.requests_ok == 0:
            return False
        # A percentile is of those that ended well: with failures, enough of all that were sent must hold the limit.
        # So must they of those that only had thoughts.
        within = summary.within_limits.get(f"{metric}_{percentile}", sent - failed)
        if (failed or metric == "ttfat_s") and 100 * within < int(percentile.removeprefix("p")) * sent:
            return False
        if sent < requests_to_see(percentile):
            decided = False
    return True if decided else None


def judged_under(run: RunRecord, slo: Slo) -> RunRecord:
    """The run as it stands under another SLO, by its recorded percentiles.

    What was counted over requests under the former limits is not known under these: goodput, and requests within each.
    """
    summary = run.summary.model_copy(update={"within_limits": {}, "goodput_request_per_s": None})
    met = slo_met(summary, slo)
    if met and any(_unknown(getattr(summary, metric), percentile) for metric, percentile, _ in slo.limits()):
        met = None
    return run.model_copy(update={"slo": slo, "summary": summary, "slo_met": met})


def _unknown(distribution: Distribution, percentile: str) -> bool:
    """Whether the percentile was not recorded although there was something to record."""
    return distribution.n != 0 and getattr(distribution, percentile) is None
