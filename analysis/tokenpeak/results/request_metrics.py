"""Metrics of single requests, as expressions over their columns, for distributions of runs and for analysts.

A metric over requests is declared in `metrics.py`, and its formula here. That of gaps between tokens is over gaps.
"""

from collections.abc import Callable

import polars as pl

_LAST, _TOKENS = pl.col("last_token_s"), pl.col("output_tokens")

REQUEST_METRICS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "ttft_s": lambda began: pl.col("first_token_s") - began,
    "tpot_s": lambda _: pl.when(_TOKENS > 1).then((_LAST - pl.col("first_token_s")) / (_TOKENS - 1)),
    "latency_s": lambda began: _LAST - began,
    "request_output_tok_per_s": lambda began: _TOKENS / (_LAST - began),
}
"""Metric → its value by when the request began to count: when it was due (open loop) or sent (closed loop)."""
