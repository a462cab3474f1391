"""Columns of metrics, confidences and links, and the words of a row's standing, as all pages have them."""

import json
import math
from dataclasses import replace

import polars as pl

from tokenpeak.metrics import metric_of, titled
from tokenpeak.ranking.intervals import CONFIDENCE, assurance_of_all
from tokenpeak.report.blocks.block import Column
from tokenpeak.report.view import metric_word
from tokenpeak.spec.slo import Slo

MILLI = ("ttft_s", "ttfat_s", "tpot_s", "itl_s")


def metric_column(name: str, *, currency: str = "currency", hidden: bool = False) -> Column:
    """A metric's column as tables show it: short latencies in milliseconds, cost in its currency."""
    found = metric_of(name)
    if found is None:
        words = name.removeprefix("engine_").replace("_", " ")
        return Column(key=name, title=f"Engine: {words}", kind="number", hidden=hidden)
    metric, statistic = found
    short = metric_word(metric.name) if metric.name in MILLI else metric.title
    unit = "ms" if metric.name in MILLI else metric.unit.replace("currency", currency)
    return Column(
        key=name,
        title=titled(replace(metric, title=short), statistic),
        unit=unit,
        kind="number",
        hidden=hidden,
        help=metric.formula,
    )


def in_milliseconds(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its short latencies in milliseconds."""
    columns = [name for name in frame.columns if name.startswith(MILLI) and frame.schema[name].is_float()]
    return frame.with_columns(pl.col(columns) * 1000) if columns else frame


def trial_href(trial_id: pl.Expr) -> pl.Expr:
    """A trial's page, relative to the sweep's folder."""
    return pl.concat_str(pl.lit("trials/"), trial_id, pl.lit(".html"))


COUNTS = ("slo", "slo_met", "within_limits", "requests_sent")
"""Columns of runs by which the confidence in an SLO is known."""


def pooled_confidence(counts: pl.Expr) -> pl.Expr:
    """The confidence that an SLO is kept by the requests of several runs, each a struct of COUNTS in a list.

    Null where a run did not meet it or its requests were not counted.
    """
    return counts.map_elements(_pooled, return_dtype=pl.Float64)


def _pooled(runs: pl.Series) -> float | None:
    own = [run for run in runs.to_list() if run["within_limits"] is not None]
    if not own or not all(run["slo_met"] for run in own):
        return None
    slo = Slo.model_validate_json(own[0]["slo"])
    return assurance_of_all(slo, [(json.loads(run["within_limits"]), run["requests_sent"]) for run in own])


def confidence_percent(confidence: pl.Expr) -> pl.Expr:
    """A confidence in percent, rounded down: it is never 100."""
    return (confidence * 1000).floor().clip(upper_bound=999) / 10


def confidence_column(frame: pl.DataFrame) -> list[Column]:
    """The confidence of an SLO that was met, in percent; nothing where no row has one."""
    help_ = "Least confidence that the SLO's percentiles lie within their limits, by the number of requests"
    column = Column(key="confidence", title="SLO confidence", unit="%", kind="number", digits=1, help=help_)
    return [column] if frame["confidence"].is_not_null().any() else []


COMPLETED = "completed"
"""It gave a result; whether that is good is said by other columns."""
ENDED_EARLY = "ended early"
"""It gave a result, so far behind that its other load levels were left out."""
BEHIND = "behind"
"""May be run, and shown to be worse than the best that may."""
UNPROVEN = "not proven"
"""What follows `highest` or `lowest` where nothing shows how much launches vary; alone, of the others."""
RESULT = (
    f"the decision on its config; best or tied of those that may be run, or {BEHIND}: shown to be worse; "
    "else what keeps it back, or why it is not ranked"
)
STATUS = f"Whether it ran to its end, or {ENDED_EARLY}, far behind; whether its result is good is said elsewhere"
HELD, BROKEN, NOT_PROVEN = "held", "broken", "held, not proven"
RANK = "By the objective's mean before rounding; equal means in the order of their first launches, as in exports"
SLO = f"{NOT_PROVEN}: within its limits, with less than {CONFIDENCE:.0%} confidence that more requests would be"


def slo_word(met: pl.Expr, confidence: pl.Expr) -> pl.Expr:
    """Held, broken, or held without CONFIDENCE; null where it was not looked at."""
    return (
        pl.when(met & (confidence.is_null() | (confidence < CONFIDENCE)))
        .then(pl.lit(NOT_PROVEN))
        .when(met)
        .then(pl.lit(HELD))
        .when(~met)
        .then(pl.lit(BROKEN))
    )


def confidence_words(confidence: float) -> str:
    """A confidence in percent, rounded down: it is never 100%."""
    return f"{min(math.floor(confidence * 1000), 999) / 10:.1f}%"
