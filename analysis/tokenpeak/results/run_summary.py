"""Percentiles, throughput and goodput of a run, by the formulas of metrics.py. Pure: requests in, a record out.

Open-loop latencies begin when a request was due, not when it was sent: no coordinated omission.

The throughput of a closed loop is over its steady window (closed_window). Output tokens count where they arrived. Whole
requests have no such moment: to count those that end in a window of few waves is to be off by up to one wave. So
requests, good requests and prompt tokens per second follow from output tokens per second by what the run has of them
for each output token, warm-up requests, which are the engine's work too, being like the others. A pooling model has no
output tokens: its input tokens count instead, spread evenly over each request's latency.
"""

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenpeak.records import AdapterSummary, Distribution, RunSummary, TurnSummary
from tokenpeak.results.closed_window import SteadyWindow, steady_window
from tokenpeak.results.request_metrics import REQUEST_METRICS
from tokenpeak.spec.slo import Slo

Numbers = NDArray[np.float64]

PERCENTILES = (25, 50, 75, 90, 95, 99)


def distribution(values: Numbers | Iterable[float]) -> Distribution:
    """Mean, standard deviation (of the sample) and percentiles (linear between the nearest two)."""
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    if not numbers.size:
        return Distribution(n=0)
    at = np.percentile(numbers, PERCENTILES)
    return Distribution(
        n=int(numbers.size),
        mean=float(numbers.mean()),
        std=float(numbers.std(ddof=1)) if numbers.size > 1 else None,
        **{f"p{percent}": float(value) for percent, value in zip(PERCENTILES, at, strict=True)},
    )


LATER = {"first_answer_s": pl.Float64, "adapter": pl.String}
"""Columns that tables of requests lack which were written before them."""


def per_request(requests: pl.DataFrame, *, from_due: bool) -> pl.DataFrame:
    """The measured requests that ended well, with all REQUEST_METRICS and `itl_p99_s`.

    Times count from when a request was due (open loop) or sent (closed loop).
    """
    began = "due_s" if from_due else "sent_s"
    lacking = LATER.keys() - set(requests.columns)
    requests = requests.with_columns(pl.lit(None, LATER[name]).alias(name) for name in lacking)
    return requests.filter((pl.col("phase") == "measured") & pl.col("error").is_null()).with_columns(
        **{name: value(pl.col(began)) for name, value in REQUEST_METRICS.items()},
        itl_p99_s=pl.col("event_times_us").list.eval(pl.element().quantile(0.99, "linear")).list.first() / 1e6,
    )


def gaps_s(requests: pl.DataFrame) -> Numbers:
    """All gaps between token events, in seconds."""
    exploded = requests["event_times_us"].explode().drop_nulls()
    return exploded.cast(pl.Float64).to_numpy() / 1e6


def token_moments(requests: pl.DataFrame) -> tuple[Numbers, Numbers]:
    """When token events arrived, and how many tokens each counts as: a request's tokens spread over its events."""
    moments: list[Numbers] = []
    weights: list[Numbers] = []
    rows = requests.filter(pl.col("first_token_s").is_not_null())
    for first, gaps, tokens, events in rows.select(
        "first_token_s", "event_times_us", "output_tokens", "events"
    ).iter_rows():
        at = first + np.concatenate([[0.0], np.cumsum(np.asarray(gaps, dtype=np.float64)) / 1e6])
        moments.append(at)
        weights.append(np.full(at.size, (tokens if tokens is not None else events) / max(events, 1)))
    if not moments:
        return np.empty(0), np.empty(0)
    return np.concatenate(moments), np.concatenate(weights)


def summarize(
    requests: pl.DataFrame, slo: Slo, *, from_due: bool, concurrency: int | None = None, generates: bool = True
) -> RunSummary:
    """The metrics of one run's requests, of which only the measured ones count.

    `concurrency` is the number in flight that a closed loop holds: its throughput is over its steady window then, if it
    has one; else over the whole load. Where the model does not generate, there is nothing of output tokens.
    """
    measured = requests.filter(pl.col("phase") == "measured")
    ok = per_request(requests, from_due=from_due)
    failures = dict(measured.filter(pl.col("error").is_not_null()).group_by("error").len().sort("error").iter_rows())
    begin = float(measured["due_s"].min() or 0.0)  # type: ignore[arg-type]
    last = measured["last_token_s"].max()
    duration = max(float(last) - begin, 1e-9) if last is not None else 0.0  # type: ignore[arg-type]
    # A server that sends no usage says nothing of its prompts.
    tokens_in = None if ok["input_tokens"].null_count() else int(ok["input_tokens"].sum() or 0)
    tokens_out = int(ok["output_tokens"].sum() or 0) if generates else None
    # Warm-up requests still stream when the first measured ones start: their tokens are the engine's throughput too,
    # but not the measured requests'.
    moments, weights = token_moments(ok)
    windows = (
        np.bincount(np.floor(moments - begin).astype(int).clip(0), weights=weights, minlength=max(1, int(duration)))
        if moments.size
        else np.empty(0)
    )

    window = _window(requests, concurrency, begin)
    # Amounts of the whole load × `part` ÷ `over_s` are rates.
    part, over_s = 1.0, duration
    if window is not None and tokens_in and not generates:
        part, over_s = _read_within(requests, window) / tokens_in, window.to_s - window.from_s
    elif window is not None and weights.sum() > 0:
        all_moments, all_weights = token_moments(requests.filter(pl.col("error").is_null()))
        inside = (all_moments > window.from_s) & (all_moments <= window.to_s)
        part, over_s = float(all_weights[inside].sum() / weights.sum()), window.to_s - window.from_s

    def rate(amount: float) -> float | None:
        return amount * part / over_s if over_s > 0 else None

    limits = slo.limits()
    good = None
    within_limits: dict[str, int] = {}
    if limits:
        all_held = pl.lit(value=True)
        for metric, percentile, limit in limits:
            column = {"itl_s": "itl_p99_s"}.get(metric, metric)
            # Answers of one token have no TPOT; one that never came holds no limit.
            without = pl.col(column).is_null() if metric != "ttfat_s" else pl.lit(value=False)
            held = without | (pl.col(column) <= limit).fill_null(value=False)
            all_held = all_held & held
            if metric != "itl_s":
                within_limits[f"{metric}_{percentile}"] = ok.filter(held).height
        good = rate(ok.filter(all_held).height)
    return RunSummary(
        duration_s=duration,
        requests_sent=measured.height,
        requests_ok=ok.height,
        requests_failed=measured.height - ok.height,
        failures=failures,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        request_per_s=rate(ok.height),
        output_tok_per_s=None if tokens_out is None else rate(tokens_out),
        input_tok_per_s=None if tokens_in is None else rate(tokens_in),
        total_tok_per_s=None if tokens_in is None or tokens_out is None else rate(tokens_in + tokens_out),
        steady_from_s=window.from_s - begin if window else None,
        steady_to_s=window.to_s - begin if window else None,
        steady_waves=window.waves if window else None,
        peak_output_tok_per_s=_peak(moments, weights),
        windowed_output_tok_per_s=tuple(round(float(value), 3) for value in windows),
        goodput_request_per_s=good,
        within_limits=within_limits,
        itl_s=distribution(gaps_s(ok)),
        **{name: distribution(ok[name].drop_nulls().to_numpy()) for name in _known_metrics(ok, slo)},
    )


def _known_metrics(ok: pl.DataFrame, slo: Slo) -> list[str]:
    """The metrics over requests; without the time to the first answer token where that is the first token's."""
    answer = pl.col("first_answer_s")
    has_thoughts = answer.is_not_null().any() & (answer.is_null() | (answer > pl.col("first_token_s"))).any()
    is_limited = any(metric == "ttfat_s" for metric, _, _ in slo.limits())
    return [name for name in REQUEST_METRICS if name != "ttfat_s" or is_limited or ok.select(has_thoughts).item()]


def _window(requests: pl.DataFrame, concurrency: int | None, begin_s: float) -> SteadyWindow | None:
    sent = requests.filter(pl.col("sent_s").is_not_null())
    if concurrency is None or sent.is_empty():
        return None
    ended = sent.select(pl.when(pl.col("error").is_null()).then("last_token_s")).to_series()
    return steady_window(
        sent["sent_s"].to_numpy(),
        ended.cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        concurrency=concurrency,
        begin_s=begin_s,
    )


def _read_within(requests: pl.DataFrame, window: SteadyWindow) -> float:
    """Input tokens within the window, each request's spread evenly from when it was sent until it ended."""
    ok = requests.filter(pl.col("error").is_null())
    sent, ended = ok["sent_s"].to_numpy(), ok["last_token_s"].to_numpy()
    inside = np.clip(np.minimum(ended, window.to_s) - np.maximum(sent, window.from_s), 0.0, None)
    return float(np.sum(ok["input_tokens"].to_numpy() * inside / np.maximum(ended - sent, 1e-9)))


def _peak(moments: Numbers, weights: Numbers) -> float | None:
    """The most tokens in any one second, wherever that second begins."""
    if not moments.size:
        return None
    order = np.argsort(moments)
    moments = moments[order]
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    ends = np.searchsorted(moments, moments + 1.0)
    return float(np.max(total[ends] - total[: moments.size]))


def turn_summaries(requests: pl.DataFrame, *, from_due: bool) -> tuple[TurnSummary, ...]:
    """The metrics of each turn of a run's conversations; empty for single requests."""
    ok = per_request(requests, from_due=from_due).filter(pl.col("turn").is_not_null())
    return tuple(
        TurnSummary(
            turn=int(turn),
            requests_ok=part.height,
            input_tokens=int(part["input_tokens"].sum()),
            output_tokens=int(part["output_tokens"].sum()),
            **_latencies(part),
        )
        for turn in sorted(ok["turn"].unique())
        for part in [ok.filter(pl.col("turn") == turn)]
    )


def adapter_summaries(requests: pl.DataFrame, summary: RunSummary, *, from_due: bool) -> tuple[AdapterSummary, ...]:
    """The metrics of each LoRA adapter's requests of a run; empty where its workload names none."""
    measured = requests.filter(pl.col("phase") == "measured", pl.col("adapter").is_not_null())
    ok = per_request(requests, from_due=from_due)
    made = []
    for adapter in sorted(measured["adapter"].unique()):
        sent, part = (frame.filter(pl.col("adapter") == adapter) for frame in (measured, ok))
        tokens, rate = int(part["output_tokens"].sum()), summary.output_tok_per_s
        made.append(
            AdapterSummary(
                adapter=adapter,
                requests_sent=sent.height,
                requests_failed=sent.height - part.height,
                input_tokens=int(part["input_tokens"].sum()),
                output_tokens=tokens,
                output_tok_per_s=rate * tokens / summary.output_tokens if rate and summary.output_tokens else None,
                **_latencies(part),
            )
        )
    return tuple(made)


def _latencies(ok: pl.DataFrame) -> dict[str, Distribution]:
    return {name: distribution(ok[name].drop_nulls().to_numpy()) for name in ("ttft_s", "tpot_s", "latency_s")}
