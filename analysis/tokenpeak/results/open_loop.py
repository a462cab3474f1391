"""Statements about an open loop: whether the engine kept up with its rate, and intervals of its percentiles. Pure."""

import numpy as np
import polars as pl

from tokenpeak.records import PercentileIntervals, SteadyStateRecord
from tokenpeak.results.percentile_interval import percentile_interval
from tokenpeak.results.run_summary import per_request
from tokenpeak.results.steady_state import RUN_MARGIN, steady_state
from tokenpeak.spec.workload import Slo

ALWAYS = (("ttft_s", "p95"), ("tpot_s", "p95"))
"""Metrics whose intervals are known without an SLO too: rate curves show them."""


def steady_state_of(requests: pl.DataFrame, margin: float = RUN_MARGIN) -> SteadyStateRecord:
    """The state of a run with these requests, failed ones left out."""
    ended = requests.filter(pl.col("error").is_null())
    found = steady_state(ended["due_s"].to_numpy(), ended["last_token_s"].to_numpy(), margin=margin)
    return SteadyStateRecord(
        state=found.state,
        growth=found.growth,
        growth_error=found.error,
        margin=margin,
        requests_needed=found.requests_needed,
    )


def percentile_intervals(requests: pl.DataFrame, slo: Slo, found: SteadyStateRecord) -> PercentileIntervals:
    """The interval of each percentile of the SLO, ITL's left out, which are of gaps; none of an overloaded run."""
    if found.state == "overloaded":
        return {}
    ok = per_request(requests, from_due=True).sort("due_s")
    wanted = dict.fromkeys((*((metric, percentile) for metric, percentile, _ in slo.limits()), *ALWAYS))
    intervals: PercentileIntervals = {}
    for metric, percentile in wanted:
        if metric == "itl_s":
            continue
        values = ok[metric].drop_nulls().to_numpy().astype(np.float64)
        intervals[f"{metric}_{percentile}"] = percentile_interval(values, int(percentile.removeprefix("p")) / 100)
    return intervals
