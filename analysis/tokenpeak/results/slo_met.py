"""SLO of a run: whether every limit held, by the recorded percentiles.

Apart from the summary itself, so that an archive is judged under another SLO without loading numpy.
"""

from tokenpeak.records import Distribution, RunRecord, RunSummary
from tokenpeak.spec.workload import Slo, requests_to_see


def slo_met(summary: RunSummary, slo: Slo) -> bool | None:
    """Whether every limit held; failed requests count as violations. None: no limits, or too few requests to decide."""
    limits = slo.limits()
    sent, failed = summary.requests_sent, summary.requests_failed or 0
    if not limits or not sent:
        return None
    decided = True
    for metric, percentile, limit in limits:
        found: Distribution = getattr(summary, metric)
        value = getattr(found, percentile)
        # Answers of one token have no TPOT and no gaps, so none that is too long.
        if (value is not None and value > limit) or summary.requests_ok == 0:
            return False
        # A percentile is of those that ended well: with failures, enough of all that were sent must hold the limit.
        within = summary.within_limits.get(f"{metric}_{percentile}", sent - failed)
        if failed and 100 * within < int(percentile.removeprefix("p")) * sent:
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


def _unknown(found: Distribution, percentile: str) -> bool:
    """Whether the percentile was not recorded although there was something to record."""
    return found.n != 0 and getattr(found, percentile) is None
