"""Ranking of configs on each kind of hardware: gains, ties, and the recommended config.

Pure: a view in, a frame out. Failed and invalid configs are rows too, at the end.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from tokenpeak.metrics import PER_GPU, metric_of
from tokenpeak.ranking.decision import Decision
from tokenpeak.ranking.decision_words import KEPT_BACK, kept_back
from tokenpeak.ranking.objective import column_of, objective_directions, trade_offs
from tokenpeak.ranking.rank import NOTHING
from tokenpeak.ranking.ties import Verdicts
from tokenpeak.report.blocks.digits import listed, number
from tokenpeak.report.ranking.classes import candidates
from tokenpeak.report.view import MEDIAN, Baseline, SweepView

MEASURED = (
    "output_tok_per_s",
    *PER_GPU.values(),
    "request_per_s",
    "goodput_request_per_s",
    "input_tok_per_s",
    "inputs_per_s",
    "total_tok_per_s",
    "request_output_tok_per_s_mean",
    "request_output_tok_per_s_p50",
    "request_input_tok_per_s_mean",
    "ttft_s_mean",
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
    "engine_prefix_cache_hit_rate",
)
"""Columns of the objective's run that a ranking carries: geometric means over launches, of engine counts plain ones."""

ROOM = ("weights_bytes", "kv_cache_bytes", "kv_cache_tokens", "max_concurrency")
"""Columns of trials that a ranking carries: weights and KV cache by the engine's log, medians over launches."""


def measured_columns(view: SweepView) -> tuple[str, ...]:
    """MEASURED with the latencies at the percentiles that the SLO limits."""
    return tuple(dict.fromkeys((*MEASURED, *view.latency_columns)))


NOT_RUN = "not run under the objective's load"
"""Why a config that started has no result, where no run of it could have given one."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The configs of one kind of hardware, best first.

    `frame` has config_id, label, config_name, alike (the labels of the other configs of its class, whose launches are
    in its figures), rank (null without a result and where a launch gave 0), objective, shown (the objective as pages
    show it: of a rate the lowest launch's), each_launch (of a rate that was measured more than once: each, in words,
    else empty), low, high (95%, null where no config was launched again), bar_low, bar_high (comparison intervals:
    where one overlaps the best's, the two are tied; null of a config that may not be run), kept_back (why it may not be
    run, in a few words; null where it may), n (launches with a result), launches, gain (share over the baseline;
    gain_low and gain_high where the baseline is a config), group (best, tie or empty), state (ok, invalid, failed or,
    where each launch was, interrupted), why (in a few words), details (in sentences), trial_id (the config's first
    trial), slo_met (in every launch; at its highest rate), slo_confidence (by the requests of all launches), quality
    (pass, fail, unknown or null) with quality_reason, stated_quality (in a publication's words), objective_unproven
    (what the objective is of a config whose answers failed or are not proven), the metrics of the objective's run
    (means over launches; beside a rate those of its launch), weights_bytes, kv_cache_bytes, kv_cache_tokens and
    max_concurrency by the engine's log. A holdout run has no part in these; its result has columns of its own.
    """

    hardware: str
    frame: pl.DataFrame
    baseline: Baseline | None
    decision: Decision
    trade_offs: dict[str, tuple[float, ...]]
    """The configs that no other beats in all objectives, with the mean of each; empty where there is but one."""

    @property
    def replicated(self) -> bool:
        """Whether launches were repeated often enough to show how much they vary."""
        return self.decision.measured.noise is not None

    @property
    def vague(self) -> bool:
        """Configs were launched again, but so few times or so differently that an interval would say nothing."""
        return not self.replicated and bool((self.frame["n"] > 1).any())

    @property
    def spread(self) -> float | None:
        """By how much launches of one config differ, as a share (one standard deviation); None: not known.

        >>> round(rank(sweep, sweep.hardware[0]).spread, 3)
        0.035
        """
        spread = self.decision.measured.spread
        return math.expm1(spread) if spread is not None else None

    @property
    def node_effects(self) -> dict[str, float]:
        """Node → by how much it is off the mean of its kind, whatever the config (log); empty where not known."""
        effects = self.decision.measured.node_effects
        return effects.effects if effects is not None else {}

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of the best mean of the configs that may be run; None where there is none.

        >>> rank(sweep, sweep.hardware[0]).best["label"]
        '64 / 8192'
        """
        return self._row(next(iter(self.decision.verdicts.ranked), None))

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The row of the decision's config, whatever the outcome; None where it names none."""
        return self._row(self.decision.config)

    def _row(self, config_id: str | None) -> dict[str, Any] | None:
        if config_id is None:
            return None
        return self.frame.row(by_predicate=pl.col("config_id") == config_id, named=True)

    @property
    def is_known(self) -> bool:
        """Whether the decision says what to run, by launches that show how much they vary."""
        outcome = self.decision.outcome
        return outcome == "run" or (outcome == "keep" and self.replicated)

    @property
    def recommended(self) -> dict[str, Any] | None:
        """The row of the config to run or to keep; None where that is not known.

        >>> rank(sweep, sweep.hardware[0]).recommended is None
        True
        """
        return self.chosen if self.is_known else None

    @property
    def mark(self) -> str:
        """What pages call the decision's config: the outcome, or that it comes nearest where nothing holds the SLO."""
        return "nearest to the SLO" if self.decision.outcome == "none_holds" else self.decision.words

    @property
    def chosen_words(self) -> str:
        """The decision's config as a table's note calls it."""
        words = {"run": "the one to run", "keep": "the one to keep", "ahead": "the one ahead"}
        return words.get(self.decision.outcome, "the nearest")

    @property
    def is_chosen(self) -> pl.Expr:
        """Whether a row of the frame is the decision's config."""
        return pl.col("config_id").eq_missing(pl.lit(self.decision.config))

    @property
    def is_recommended(self) -> pl.Expr:
        """Whether a row of the frame is that config's."""
        return pl.col("config_id").eq_missing(pl.lit(self.recommended["config_id"] if self.recommended else None))

    @property
    def baseline_label(self) -> str | None:
        """The baseline's label, where it is a config."""
        known = self.baseline.config_id if self.baseline else None
        return next(iter(self.frame.filter(pl.col("config_id") == known)["label"]), None) if known else None

    @property
    def reference(self) -> tuple[float, str] | None:
        """The baseline's value and its name beside a line in a figure."""
        if self.baseline is None:
            return None
        if self.baseline.config_id is None:
            return self.baseline.value, "median"
        (shown,) = self.frame.filter(pl.col("config_id") == self.baseline.config_id)["shown"]
        return float(shown), self.baseline.words

    @property
    def ties(self) -> pl.DataFrame:
        """The other configs of the decision's group.

        >>> rank(sweep, sweep.hardware[0]).ties["label"].to_list()
        ['64 / 2048']
        """
        return self.frame.filter(pl.col("group") == "tie")


def reason_words() -> pl.Expr:
    """Why a run is invalid, in a few words."""
    return pl.col("verdict_codes").list.join(", ").str.replace_all("_", " ")


@lru_cache(maxsize=32)
def rank(view: SweepView, hardware: str) -> Ranking:
    """The ranking of a sweep's configs on one kind of hardware by the spec's objective.

    >>> rank(sweep, sweep.hardware[0]).frame.select("label", "rank", "group").rows()[:2]
    [('64 / 8192', 1, 'best'), ('64 / 2048', 2, 'tie')]
    """
    trials = view.trials.filter(pl.col("hardware") == hardware)
    found = candidates(view, hardware)
    # Configs of one class are one row: that of the config that stands for it.
    trials = trials.with_columns(
        config_id=pl.col("config_id").replace(found.of),
        is_mate=pl.col("config_id") != pl.col("config_id").replace(found.of),
    )
    also = [column_of(name) for name in view.spec.objective.also]
    measured = [name for name in dict.fromkeys((*measured_columns(view), *also)) if name in view.runs.columns]
    known = ("verdict", "verdict_codes", "verdict_reasons", "energy_source", "slo_confidence")
    runs = view.held_runs() if view.spec.objective.is_rate else view.objective_runs()
    runs = runs.select("trial_id", *known, *measured)
    joined = trials.join(runs, on="trial_id", how="left").with_columns(
        objective_holdout=pl.when("holdout").then("objective"),
        objective=pl.when(~pl.col("holdout")).then("objective"),
    )
    axes = [f"axis_{axis}" for axis in view.axes if f"axis_{axis}" in trials.columns]
    has = pl.col("objective").is_not_null()
    frame = joined.group_by("config_id", maintain_order=True).agg(
        pl.col("label", "config_name", "trial_id", *axes).sort_by("is_mate", maintain_order=True).first(),
        pl.col("label").filter("is_mate").unique(maintain_order=True).alias("alike"),
        pl.col("quality", "quality_reason", "stated_quality").drop_nulls().first(),
        pl.col("objective_unproven").filter(~pl.col("holdout")).log().mean().exp(),
        has.sum().cast(pl.Int64).alias("n"),
        pl.len().cast(pl.Int64).alias("launches"),
        *(
            # What was seen at another launch's rate says nothing of this one.
            pl.col(name).filter(has).sort_by(pl.col("objective").filter(has)).first()
            if view.spec.objective.is_rate
            else _mean(name, has)
            for name in measured
        ),
        pl.when(has.any()).then(pl.col("slo_met").filter(has).all(ignore_nulls=False)).alias("slo_met"),
        pl.col(*ROOM).filter(has).median(),
        pl.col("objective_holdout").drop_nulls().first(),
        pl.col("slo_met")
        .filter(pl.col("objective_holdout").is_not_null())
        .all(ignore_nulls=False)
        .alias("holdout_slo_met"),
        (pl.col("status") == "ok").any().alias("started"),
        (pl.col("status") == "interrupted").all().alias("interrupted"),
        pl.col("failure_cause").drop_nulls().first().alias("cause"),
        pl.col("failure_message").drop_nulls().first().alias("message"),
        reason_words().filter(pl.col("verdict") == "invalid").first().alias("reasons"),
        pl.col("verdict_reasons").list.join(" ").filter(pl.col("verdict") == "invalid").first().alias("sentences"),
    )
    frame = _ranked(frame, found.decision.measured).with_columns(
        slo_confidence=pl.col("config_id").replace_strict(found.hold_confidence, default=None, return_dtype=pl.Float64),
        state=pl.when(pl.col("rank").is_not_null())
        .then(pl.lit("ok"))
        .when(pl.col("started"))
        .then(pl.lit("invalid"))
        .when(pl.col("interrupted"))
        .then(pl.lit("interrupted"))
        .otherwise(pl.lit("failed")),
        why=pl.when(pl.col("rank").is_not_null())
        .then(None)
        .when(pl.col("n") > 0)
        .then(pl.lit(NOTHING))
        .when(pl.col("started"))
        .then(pl.coalesce("reasons", pl.lit(NOT_RUN)))
        .when(pl.col("interrupted"))
        .then(pl.lit("the launch was interrupted"))
        .otherwise(pl.coalesce(pl.col("cause").str.replace_all("_", " "), pl.lit("failed"))),
        details=pl.when(pl.col("n") == 0).then(pl.coalesce("message", "sentences")),
    )
    baseline = _baseline(view, frame)
    allowed = set(found.decision.verdicts.ranked)
    kept = {
        each.config: KEPT_BACK[kept_back(each.hold, each.answers)][0]
        for each in found.all
        if each.config not in allowed or each.hold == "broken"
    }
    frame = frame.with_columns(kept_back=pl.col("config_id").replace_strict(kept, default=None, return_dtype=pl.String))
    rates = {each.config: each.launches for each in found.all} if view.spec.objective.is_rate else {}
    if rates:
        # A trial's own verdict is of the rate after the highest one, too.
        holds = {each.config: each.hold != "broken" for each in found.all if each.hold != "no_limit"}
        frame = frame.with_columns(
            slo_met=pl.col("config_id").replace_strict(holds, default=None, return_dtype=pl.Boolean)
        )
    lowest = {config: min(launches) for config, launches in rates.items() if launches}
    several = {config: listed([number(each) for each in own]) for config, own in rates.items() if len(own) > 1}
    frame = frame.with_columns(
        shown=pl.coalesce(
            pl.col("config_id").replace_strict(lowest, default=None, return_dtype=pl.Float64), "objective"
        ),
        each_launch=pl.col("config_id").replace_strict(several, default="", return_dtype=pl.String),
    )
    frame = _standings(frame.sort("rank", nulls_last=True, maintain_order=True), found.decision, baseline)
    return Ranking(
        hardware=hardware,
        frame=frame,
        baseline=baseline,
        decision=found.decision,
        trade_offs=_trade_offs(view, joined.filter(has)),
    )


def _ranked(frame: pl.DataFrame, found: Verdicts) -> pl.DataFrame:
    """The frame with the rank and the objective's mean of each config; a mean of 0 has no rank."""
    rows: list[tuple[str, int | None, float]] = [(each.config, each.rank, each.mean) for each in found.standings]
    rows += [(config, None, 0.0) for config in found.without_rank]
    schema = {"config_id": pl.String, "rank": pl.Int64, "objective": pl.Float64}
    return frame.join(
        pl.DataFrame(rows, schema=schema, orient="row"), on="config_id", how="left", maintain_order="left"
    )


def _mean(name: str, has: pl.Expr) -> pl.Expr:
    """A column's mean over launches, as trade-offs and the objective have it; a count may be 0, which has no log."""
    values = pl.col(name).filter(has)
    return values.mean() if metric_of(name) is None else values.log().mean().exp()


def _baseline(view: SweepView, frame: pl.DataFrame) -> Baseline | None:
    ok = frame.filter(pl.col("state") == "ok")
    for name in view.spec.search.baseline:
        row = ok.filter(pl.col("config_name") == name)
        if row.height:
            return Baseline(config_id=row["config_id"][0], words=name, value=float(row["objective"][0]))
    if ok.height < 2:
        return None
    return Baseline(config_id=None, words=MEDIAN, value=float(ok["objective"].median()))  # type: ignore[arg-type]


def _trade_offs(view: SweepView, launches: pl.DataFrame) -> dict[str, tuple[float, ...]]:
    also = [column_of(name) for name in view.spec.objective.also]
    if not also:
        return {}
    values: dict[str, list[tuple[float | None, ...]]] = {}
    for config_id, *row in launches.select("config_id", "objective", *also).iter_rows():
        values.setdefault(config_id, []).append(tuple(row))
    return trade_offs(values, objective_directions(view.spec))


def _standings(frame: pl.DataFrame, decision: Decision, baseline: Baseline | None) -> pl.DataFrame:
    """The frame with group, low, high, bar_low, bar_high, gain, gain_low and gain_high.

    The spread of launches is pooled over all configs, so that a config launched once has an interval too as soon as
    any other was launched again; where none was, there is none, and configs within the margin of the best are tied.
    Bars are comparison intervals among those that may be run: one that overlaps the best's is tied with it.
    """
    measured = decision.measured
    allowed = {standing.config: standing for standing in decision.verdicts.standings}
    ranked = {standing.config for standing in measured.standings}
    own_bar = min((standing.apart for standing in allowed.values() if standing.apart is not None), default=None)
    rows = []
    for standing in measured.standings:
        half = measured.half_width(standing.config)
        against = baseline.config_id if baseline and baseline.config_id in ranked else None
        gap = measured.half_width(standing.config, against) if against and against != standing.config else None
        gain = standing.mean / baseline.value if baseline else None
        mine = allowed.get(standing.config)
        bar = None
        if mine is not None and own_bar is not None:
            bar = own_bar / 2 if mine.apart is None else mine.apart - own_bar / 2
        rows.append(
            {
                "config_id": standing.config,
                "group": "best"
                if standing.config in decision.group[:1]
                else "tie"
                if standing.config in decision.group
                else "",
                "low": standing.mean * math.exp(-half) if half is not None else None,
                "high": standing.mean * math.exp(half) if half is not None else None,
                "bar_low": standing.mean * math.exp(-bar) if bar is not None else None,
                "bar_high": standing.mean * math.exp(bar) if bar is not None else None,
                "gain": gain - 1 if gain is not None else None,
                "gain_low": gain * math.exp(-gap) - 1 if gain is not None and gap is not None else None,
                "gain_high": gain * math.exp(gap) - 1 if gain is not None and gap is not None else None,
            }
        )
    numbers = ("low", "high", "bar_low", "bar_high", "gain", "gain_low", "gain_high")
    schema = {"config_id": pl.String, "group": pl.String} | dict.fromkeys(numbers, pl.Float64)
    joined = frame.join(pl.DataFrame(rows, schema=schema), on="config_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("group").fill_null(""))


def choices(view: SweepView, row: dict[str, object]) -> str:
    """A config as a reader would say it: each axis with its alternative."""
    pairs = [f"{axis}={row[f'axis_{axis}']}" for axis in view.axes if row.get(f"axis_{axis}") is not None]
    return ", ".join(pairs) or str(row["config_name"])


FEW = 2
"""Most kinds of hardware of which a sentence speaks one by one."""
