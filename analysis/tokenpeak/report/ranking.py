"""Which config is best on each kind of hardware, by how much, and which others are as good.

Pure: a view in, a frame out. Failed and invalid configs are rows too, at the end.
"""

from dataclasses import dataclass

import polars as pl

from tokenpeak.report.view import MEDIAN, Baseline, SweepView

MEASURED = (
    "output_tok_per_s",
    "request_per_s",
    "goodput_request_per_s",
    "request_output_tok_per_s_p50",
    "ttft_s_p50",
    "ttft_s_p95",
    "ttft_s_p99",
    "tpot_s_p50",
    "tpot_s_p95",
    "tpot_s_p99",
    "itl_s_p99",
    "latency_s_p50",
    "latency_s_p95",
    "energy_j_per_output_tok",
    "power_w",
    "cost_per_1m_output_tok",
    "engine_kv_cache_usage_max",
    "engine_waiting_max",
    "engine_preemptions",
)
"""Columns of the objective's run that a ranking carries, averaged over launches."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The configs of one kind of hardware, best first.

    `frame` has config_id, label, config_name, rank (null without a result), objective, low, high (null for a single
    launch), n (launches with a result), launches, gain (share over the baseline), group (best, tie or empty), state
    (ok, invalid or failed), why, trial_id (the config's first trial) and the columns of MEASURED.
    """

    hardware: str
    frame: pl.DataFrame
    baseline: Baseline | None
    replicated: bool

    @property
    def best(self) -> dict[str, object] | None:
        """The winner's row; None when nothing gave a result."""
        ok = self.frame.filter(pl.col("state") == "ok")
        return ok.row(0, named=True) if ok.height else None

    @property
    def ties(self) -> pl.DataFrame:
        """The other configs that cannot be told from the winner."""
        return self.frame.filter(pl.col("group") == "tie")


def rank(view: SweepView, hardware: str) -> Ranking:
    """The ranking of a sweep's configs on one kind of hardware by the spec's objective."""
    trials = view.trials.filter(pl.col("hardware") == hardware)
    measured = [name for name in MEASURED if name in view.runs.columns]
    runs = view.objective_runs().select("trial_id", "verdict", "verdict_reasons", *measured)
    joined = trials.join(runs, on="trial_id", how="left")
    axes = [f"axis_{axis}" for axis in view.axes if f"axis_{axis}" in trials.columns]
    has = pl.col("objective").is_not_null()
    frame = joined.group_by("config_id", maintain_order=True).agg(
        pl.col("label", "config_name", "trial_id", *axes).first(),
        pl.col("objective").mean(),
        pl.col("objective").std().alias("spread"),
        has.sum().cast(pl.Int64).alias("n"),
        pl.len().cast(pl.Int64).alias("launches"),
        pl.col(*measured).filter(has).mean(),
        pl.when(has.any()).then(pl.col("slo_met").filter(has).all(ignore_nulls=False)).alias("slo_met"),
        (pl.col("status") == "ok").any().alias("started"),
        pl.col("failure_cause").drop_nulls().first().alias("cause"),
        pl.col("failure_message").drop_nulls().first().alias("message"),
        pl.col("verdict_reasons").list.join("; ").filter(pl.col("verdict") == "invalid").first().alias("reasons"),
    )
    frame = frame.with_columns(
        state=pl.when(pl.col("n") > 0)
        .then(pl.lit("ok"))
        .when(pl.col("started"))
        .then(pl.lit("invalid"))
        .otherwise(pl.lit("failed")),
        why=pl.when(pl.col("n") > 0)
        .then(None)
        .when(pl.col("started"))
        .then(pl.coalesce("reasons", pl.lit("the objective's run was not made")))
        .otherwise(
            pl.concat_str(pl.col("cause").str.replace_all("_", " "), pl.lit(": "), pl.col("message"), ignore_nulls=True)
        ),
    )
    frame = _intervals(frame)
    baseline = _baseline(view, frame)
    frame = frame.sort(
        pl.col("state") != "ok",
        pl.col("objective") * (-1 if view.higher_is_better else 1),
        nulls_last=True,
        maintain_order=True,
    )
    frame = _grouped(view, frame)
    gain = (pl.col("objective") / baseline.value - 1) if baseline else pl.lit(None, dtype=pl.Float64)
    frame = frame.with_columns(gain=gain, rank=pl.when(pl.col("state") == "ok").then(pl.int_range(1, pl.len() + 1)))
    return Ranking(hardware=hardware, frame=frame, baseline=baseline, replicated=bool((frame["n"] > 1).any()))


def _intervals(frame: pl.DataFrame) -> pl.DataFrame:
    """95% intervals of each config's mean; a single launch has none."""
    from scipy.special import stdtrit

    n = frame["n"].to_list()
    freedom = sum(max(0, count - 1) for count in n)
    if freedom == 0:
        return frame.with_columns(low=pl.lit(None, dtype=pl.Float64), high=pl.lit(None, dtype=pl.Float64))
    # Launches of all configs share one relative spread: with two or three each, a spread of its own says little.
    relative = (
        frame.filter(pl.col("n") > 1)
        .select((((pl.col("spread") / pl.col("objective")) ** 2 * (pl.col("n") - 1)).sum() / freedom).sqrt())
        .item()
    )
    half = pl.col("objective") * float(stdtrit(freedom, 0.975)) * relative / pl.col("n").sqrt()
    many = pl.col("n") > 1
    return frame.with_columns(
        low=pl.when(many).then(pl.col("objective") - half), high=pl.when(many).then(pl.col("objective") + half)
    )


def _baseline(view: SweepView, frame: pl.DataFrame) -> Baseline | None:
    ok = frame.filter(pl.col("state") == "ok")
    for name in view.spec.search.baseline:
        row = ok.filter(pl.col("config_name") == name)
        if row.height:
            return Baseline(config_id=row["config_id"][0], words=name, value=float(row["objective"][0]))
    if ok.height < 2:
        return None
    return Baseline(config_id=None, words=MEDIAN, value=float(ok["objective"].median()))  # type: ignore[arg-type]


def _grouped(view: SweepView, frame: pl.DataFrame) -> pl.DataFrame:
    """The winner and those within its interval, or within the spec's margin where a single launch gives none."""
    ok = frame.filter(pl.col("state") == "ok")
    if ok.is_empty():
        return frame.with_columns(group=pl.lit(""))
    best = ok.row(0, named=True)
    margin = view.spec.search.margin
    up = view.higher_is_better
    near = (
        pl.col("objective") >= best["objective"] * (1 - margin)
        if up
        else pl.col("objective") <= best["objective"] * (1 + margin)
    )
    if best["low"] is not None:
        overlap = pl.col("high") >= best["low"] if up else pl.col("low") <= best["high"]
        near = near | overlap.fill_null(value=False)
    return frame.with_columns(
        group=pl.when(pl.col("config_id") == best["config_id"])
        .then(pl.lit("best"))
        .when((pl.col("state") == "ok") & near)
        .then(pl.lit("tie"))
        .otherwise(pl.lit(""))
    )
