"""Load levels: each workload at each load level, the decision's config against the baseline and the best.

The decision is by one workload at one level; this table shows what it gives in all others.
"""

from functools import lru_cache

import polars as pl

from tokenpeak.metrics import title_of
from tokenpeak.paths import slug
from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.report.blocks.block import Column, Sentence, Table, code, strong, table, warning
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.blocks.metric_columns import COUNTS, SLO, pooled_confidence, slo_word, trial_href
from tokenpeak.report.load import curves
from tokenpeak.report.ranking.classes import by_class
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView, latency_words

AT_A_RATE = " All configs that keep up with a request rate have the same throughput."
HIDDEN_LOSS = 0.1
"""From this share below the best config of another workload on, the page says so in a sentence."""
METRICS = ("output_tok_per_s", "input_tok_per_s", "request_output_tok_per_s_p50")
"""Of a run, as means over launches, beside the latencies that the SLO limits."""


@lru_cache(maxsize=8)
def level_means(view: SweepView, hardware: str) -> pl.DataFrame:
    """A row per config, workload and load level: geometric means over its launches that may be ranked.

    Configs of one class are one, as in the ranking.
    Columns: config_id, label, workload_name, level_label, open (at a rate), slo_met (in every launch), slo_confidence
    (by the requests of all), n, METRICS and the view's latency_columns, null where a launch has none or nothing of
    it.
    """
    runs = view.same_requests().filter(pl.col("hardware") == hardware, pl.col("verdict") != "invalid")
    runs = by_class(view, runs)
    known = [name for name in (*METRICS, *view.latency_columns) if name in runs.columns]
    return (
        runs.group_by("config_id", "label", "workload_name", "level_label", maintain_order=True)
        .agg(
            pl.col("rate_per_s").is_not_null().any().alias("open"),
            pl.col("slo_met").all(ignore_nulls=False).alias("slo_met"),
            pl.struct(COUNTS).alias("counts"),
            pl.len().alias("n"),
            *(pl.when((pl.col(name) > 0).all()).then(pl.col(name).log().mean().exp()).alias(name) for name in known),
        )
        .with_columns(pooled_confidence(pl.col("counts")).alias("slo_confidence"))
        .drop("counts")
    )


def compared(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """A row per workload and load level: the decision's config beside the baseline and the best of that level.

    Columns: workload, level, open, at (the objective's own), mine, theirs, best (tok/s), best_label (of those that may
    be run, else of all), behind (share below the best), ttft, ttft_theirs (ms, at the SLO's percentile), slo,
    n. At a given rate all configs that keep up give the same tok/s.
    """
    recommended = ranked.chosen
    speed = throughput_column(view.spec)
    means = level_means(view, ranked.hardware).filter(pl.col(speed).is_not_null())
    if recommended is None or means.is_empty():
        return pl.DataFrame()
    baseline = ranked.baseline.config_id if ranked.baseline else None
    place = ["workload_name", "level_label"]
    milli = pl.col(view.latency_columns[0]) * 1000
    mine = means.filter(config_id=recommended["config_id"]).select(
        *place, "open", "slo_met", "slo_confidence", "n", mine=speed, ttft=milli
    )
    theirs = means.filter(pl.col("config_id").eq_missing(pl.lit(baseline))).select(
        *place, theirs=speed, ttft_theirs=milli
    )
    none_holds = ranked.decision.outcome == "none_holds"
    kept_back = [] if none_holds else ranked.frame.drop_nulls("kept_back")["config_id"].to_list()
    best = (
        means.filter(~pl.col("config_id").is_in(kept_back))
        .sort(speed, descending=True, maintain_order=True)
        .group_by(place, maintain_order=True)
        .agg(pl.col(speed).first().alias("best"), pl.col("label").first().alias("best_label"))
    )
    workload, level = view.spec.objective_run()
    order = [
        {"workload_name": plan.workload.name, "level_label": each.label, "order": index}
        for index, (plan, each) in enumerate((plan, each) for plan in view.spec.workloads for each in plan.levels)
    ]
    return (
        mine.join(theirs, on=place, how="left")
        .join(best, on=place, how="left")
        .join(pl.DataFrame(order), on=place, how="left")
        .with_columns(
            behind=pl.col("mine") / pl.col("best") - 1,
            against=pl.col("mine") / pl.col("theirs") - 1,
            at=(pl.col("workload_name") == workload) & (pl.col("level_label") == level),
        )
        .sort("order", nulls_last=True, maintain_order=True)
    )


def load_levels(view: SweepView, ranked: Ranking) -> Table | None:
    """The table of `compared`; None where there is one level only, or no config to show."""
    frame = compared(view, ranked)
    if frame.height < 2:
        return None
    is_own = ranked.baseline is not None and ranked.baseline.config_id == ranked.decision.config
    against = None if is_own else ranked.baseline_label
    several = frame["workload_name"].n_unique() > 1
    shown = frame.with_columns(
        pl.col("behind", "against") * 100,
        slo=slo_word(pl.col("slo_met"), pl.col("slo_confidence")),
        tone=pl.when("at").then(pl.lit("best")).otherwise(pl.lit("")),
    )
    baseline = [
        Column(key="theirs", title=against or "", unit="tok/s", kind="number"),
        Column(key="against", title=f"Against {against}", unit="%", kind="number", digits=1, signed=True),
    ]
    ttft = latency_words(view.latency_columns[0])
    waits = [Column(key="ttft", title=ttft, unit="ms", kind="number")]
    if against and shown["ttft_theirs"].is_not_null().any():
        waits.append(Column(key="ttft_theirs", title=f"{against}: {ttft}", unit="ms", kind="number"))
    return table(
        shown,
        [
            *([Column(key="workload_name", title="Workload")] if several else []),
            Column(key="level_label", title="Load", kind="code"),
            Column(key="mine", title="This config", unit="tok/s", kind="number"),
            *(baseline if against else []),
            Column(key="best", title="Best here", unit="tok/s", kind="number"),
            Column(key="behind", title="Against best", unit="%", kind="number", digits=1, signed=True),
            Column(key="best_label", title="Best config here", kind="code"),
            *(waits if shown["ttft"].is_not_null().any() else []),
            *([Column(key="slo", title="SLO", kind="state", help=SLO)] if shown["slo"].is_not_null().any() else []),
        ],
        name=f"levels-{slug(ranked.hardware)}",
        title=f"Every load level{view.where(ranked.hardware)}",
        tone="tone",
        note="The highlighted level decides. Best: of the configs that may be run."
        + (AT_A_RATE if view.runs["rate_per_s"].is_not_null().any() else ""),
    )


def hidden_loss(view: SweepView, ranked: Ranking) -> Sentence | None:
    """Where the decision's config is far behind another at a load that did not decide; None where it is nowhere."""
    frame = compared(view, ranked)
    if frame.is_empty():
        return None
    losses = frame.filter(~pl.col("at"), ~pl.col("open"), pl.col("behind") < -HIDDEN_LOSS).sort("behind")
    if losses.is_empty():
        return None
    row = losses.row(0, named=True)
    of = f" of workload {row['workload_name']}" if len(view.spec.workloads) > 1 else ""
    return warning(
        f"At {row['level_label']}{of} this config reaches only ",
        strong(f"{number(row['mine'])} tok/s"),
        "; ",
        code(row["best_label"]),
        f" reaches {number(row['best'])}.",
    )


LEVELS = 8
"""Load levels whose columns are shown at first."""


def throughput_by_load(view: SweepView, ranked: Ranking, workload: str) -> Table | None:
    """A row per config with its throughput at each number of requests in flight; None where there is but one."""
    runs = curves.loaded_runs(view, ranked.hardware, workload, "users")
    per_gpu = view.differ_in_gpus(ranked.hardware)
    column, unit = ("output_tok_per_s_per_gpu", "tok/s per GPU") if per_gpu else (throughput_column(view.spec), "tok/s")
    points = curves.points(runs, curves.Measure(column=column, title="", unit=unit))
    if points.is_empty() or points["x"].n_unique() < 2:
        return None
    levels = points["x"].unique().sort().to_list()
    wide = points.pivot("x", index="series", values="value")
    order = pl.DataFrame({"series": ranked.frame["label"], "href": ranked.frame["trial_id"]})
    shown = order.join(wide, on="series", how="inner", maintain_order="left")
    return table(
        shown.with_columns(href=trial_href(pl.col("href"))),
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            *(
                Column(key=str(level), title=f"{level:g}", unit=unit, kind="number", hidden=place >= LEVELS)
                for place, level in enumerate(levels)
            ),
        ],
        name=f"by-load-{slug(ranked.hardware)}-{slug(workload)}",
        title=f"{title_of(throughput_column(view.spec))} by requests in flight{view.where(ranked.hardware)}",
        hrefs={"series": "href"},
        scope=slug(ranked.hardware),
        note="Geometric means over launches; configs in the order of the ranking.",
    )
