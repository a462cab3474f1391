"""The tables of the pages."""

from dataclasses import replace

import polars as pl

from tokenpeak.metrics import PER_GPU, metric_of, titled
from tokenpeak.names import slug
from tokenpeak.ranking.objective import column_of
from tokenpeak.records import OVERLOADED
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.ranking.standings import MEASURED, NOT_RUN, Ranking, reason_words
from tokenpeak.report.standing_words import BEHIND, COMPLETED, ENDED_EARLY, RANK, RESULT, SLO, STATUS, slo_word
from tokenpeak.report.view import LAUNCH, SweepView, metric_word

HOLDOUT = "One more launch of the search's choice, on fresh requests, which selected nothing"
MILLI = ("ttft_s", "tpot_s", "itl_s")


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


def confidence_percent(confidence: pl.Expr) -> pl.Expr:
    """A confidence in percent, rounded down: it is never 100."""
    return (confidence * 1000).floor().clip(upper_bound=999) / 10


def confidence_column(frame: pl.DataFrame) -> list[Column]:
    """The confidence of an SLO that was met, in percent; nothing where no row has one."""
    help_ = "Least confidence that the SLO's percentiles lie within their limits, by the number of requests"
    column = Column(key="sure", title="SLO confidence", unit="%", kind="number", digits=1, help=help_)
    return [column] if frame["sure"].is_not_null().any() else []


def ranking(view: SweepView, ranked: Ranking) -> Table:
    """Every config of one kind of hardware, failed and invalid ones with their reason."""
    title = view.metric_title
    objective = view.spec.objective.metric
    recommended = [ranked.choice.config.config_id] if ranked.choice is not None and ranked.choice.group > 1 else []
    frame = in_milliseconds(ranked.frame).with_columns(
        href=trial_href(pl.col("trial_id")),
        gain=pl.col("gain") * 100,
        sure=confidence_percent(pl.col("slo_sure")),
        tone=pl.when(pl.col("state") != "ok")
        .then(pl.lit("pale"))
        .when(ranked.is_recommended)
        .then(pl.lit("best"))
        .otherwise(pl.col("group").replace("best", "tie")),
        slo=slo_word(pl.col("slo_met"), pl.col("slo_sure")),
        result=pl.when(pl.col("config_id").is_in(recommended))
        .then(pl.lit("recommended"))
        .when(pl.col("group") == "best")
        .then(pl.lit("best"))
        .when(pl.col("group") == "tie")
        .then(pl.lit("tied"))
        .when(pl.col("state") == "ok")
        .then(pl.lit(BEHIND))
        .when(pl.col("why") == NOT_RUN)
        .then(None)
        .otherwise(pl.col("state")),
    )
    measured = [
        name for name in MEASURED if name in frame.columns and name != objective and frame[name].is_not_null().any()
    ]
    # Of engines on one GPU each, a GPU gives what the engine gives.
    for whole, per_gpu in PER_GPU.items():
        if whole in frame.columns and per_gpu in measured and frame[whole].equals(frame[per_gpu]):
            measured.remove(per_gpu)
    shown = {
        *view.latency_columns,
        *(each for pair in PER_GPU.items() for each in pair if view.differ_in_gpus(ranked.hardware)),
    }
    axes = [Column(key=f"axis_{axis}", title=axis, kind="code", hidden=True) for axis in view.axes]
    scale = 1000.0 if view.metric.name in MILLI else 1.0
    frame = frame.with_columns(pl.col("objective", "low", "high", "objective_holdout", "objective_unproven") * scale)
    unit = "ms" if scale != 1.0 else view.metric.unit
    rests_on = "Launches with a result" if view.launches_known else "Published figures; launches are not known"
    against = f"Against {ranked.baseline.words if ranked.baseline and ranked.baseline.config_id else 'median'}"
    return table(
        frame,
        [
            Column(key="label", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="rank", title="Rank", kind="number", help=RANK),
            *axes,
            Column(key="result", title="Result", kind="state", help=RESULT),
            Column(key="objective", title=title, unit=unit, kind="number"),
            *_quality_columns(frame, unit),
            Column(key="low", title="95% low", unit=unit, kind="number", hidden=not ranked.replicated),
            Column(key="high", title="95% high", unit=unit, kind="number", hidden=not ranked.replicated),
            Column(key="gain", title=against, unit="%", kind="number", digits=1, signed=True),
            Column(key="n", title="n", kind="number", help=rests_on),
            *(
                [Column(key="objective_holdout", title="Holdout run", unit=unit, kind="number", help=HOLDOUT)]
                if frame["objective_holdout"].is_not_null().any()
                else []
            ),
            *([Column(key="slo", title="SLO", kind="state", help=SLO)] if frame["slo"].is_not_null().any() else []),
            *(replace(column, hidden=True) for column in confidence_column(frame)),
            *[metric_column(name, currency=view.spec.energy.currency, hidden=name not in shown) for name in measured],
            *([Column(key="why", title="Why not")] if frame["why"].is_not_null().any() else []),
            Column(key="details", title="Why not, in full", hidden=True),
            Column(key="config_id", title="Config id", kind="code", hidden=True),
        ],
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"All configs on {ranked.hardware}",
        tone="tone",
        hrefs={"label": "href"},
        note="A config's link leads to its first trial. Ranks go by means before rounding, so equal figures may differ "
        "in rank; configs that are tied are not distinguished.",
        span="wide",
    )


def _quality_columns(frame: pl.DataFrame, unit: str) -> list[Column]:
    """Whether answers are the reference's, and the speed of those that are not; nothing where none were compared."""
    if frame["quality"].is_null().all():
        return []
    speed = Column(
        key="objective_unproven",
        title="If its answers were right",
        unit=unit,
        kind="number",
        help="What was measured of a config whose answers failed or are not proven; it is not ranked",
    )
    return [
        Column(key="quality", title="Quality", kind="state", help="Whether its answers agree with the reference's"),
        *([speed] if frame["objective_unproven"].is_not_null().any() else []),
        Column(key="quality_reason", title="Quality, why", hidden=True),
    ]


def trade_offs(view: SweepView, ranked: Ranking) -> Table | None:
    """The configs that no other beats in all objectives; None where the spec names but one."""
    columns = [column_of(name) for name in (view.spec.objective.metric, *view.spec.objective.also)]
    if not ranked.trade_offs:
        return None
    rows = [
        {"config_id": config_id} | dict(zip(columns, means, strict=True))
        for config_id, means in ranked.trade_offs.items()
    ]
    known = ranked.frame.select("config_id", "label", "rank", href=trial_href(pl.col("trial_id")))
    return table(
        in_milliseconds(pl.DataFrame(rows)).join(known, on="config_id", how="left").sort("rank"),
        [
            Column(key="label", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="rank", title="Rank", kind="number"),
            *(metric_column(name, currency=view.spec.energy.currency) for name in columns),
        ],
        name=f"trade-offs-{slug(ranked.hardware)}",
        title=f"Not beaten in every objective on {ranked.hardware}",
        hrefs={"label": "href"},
        note="Every other config is at most as good in all of these and worse in one, by means over launches; "
        "neighbours may differ by less than launches can separate.",
    )


def _one(frame: pl.DataFrame, column: str) -> bool:
    """All rows share the column's value, so that it says nothing."""
    return frame[column].n_unique() == 1


def failures(view: SweepView) -> Table | None:
    """Trials that gave no result, with the cause and the log's own line; None when there is none."""
    frame = view.trials.filter(pl.col("status") != "ok")
    if frame.is_empty():
        return None
    shown = frame.with_columns(
        href=trial_href(pl.col("trial_id")),
        cause=pl.col("failure_cause").fill_null(pl.col("status")).str.replace_all("_", " "),
        evidence=pl.col("failure_evidence").list.first(),
    )
    return table(
        shown,
        [
            Column(key="trial_id", title="Trial", kind="code"),
            Column(key="label", title="Config", kind="code"),
            Column(key="hardware", title="Hardware", hidden=_one(shown, "hardware")),
            Column(key="cause", title="Cause", kind="state"),
            Column(key="failure_phase", title="Phase"),
            Column(key="failure_message", title="What happened"),
            Column(key="evidence", title="Engine's log", kind="code"),
        ],
        name="failures",
        title="Trials without a result",
        hrefs={"trial_id": "href"},
    )


def dropped(view: SweepView) -> Table | None:
    """Configs of the matrix that were not tried, with the rule; None when there is none."""
    rows = [
        {
            "hardware": plan.hardware,
            "config": item.config.name,
            "rule": item.rule.replace("_", " "),
            "reason": item.reason,
        }
        for plan in view.record.plans
        for item in plan.dropped
    ]
    if not rows:
        return None
    return table(
        pl.DataFrame(rows),
        [
            Column(key="config", title="Config", kind="code"),
            Column(key="hardware", title="Hardware"),
            Column(key="rule", title="Rule"),
            Column(key="reason", title="Reason"),
        ],
        name="dropped",
        title="Configs dropped before any launch",
    )


SHOWN_RUNS = 250
STATE_COLUMNS = (
    Column(key="state", title="State"),
    Column(key="duration_s", title="Measured for", unit="s", kind="number"),
)

RECOMPUTED = Column(
    key="recomputed",
    title="Recomputed",
    unit="%",
    kind="number",
    digits=2,
    help="About the share of tokens that the engine computed again after preemptions; above 1% a run is invalid.",
)

TEMPERATURE = Column(
    key="temperature_c",
    title="Boards at begin",
    unit="°C",
    kind="number",
    digits=0,
    hidden=True,
    help="Mean temperature of the boards when the run began; hot boards draw more.",
)

BOUNDARIES = (
    Column(
        key="node_j_per_output_tok",
        title="Whole node",
        unit="J/token",
        kind="number",
        help="Energy per output token by the node's own meter (BMC or PDU); its boards are in it.",
    ),
    Column(
        key="cpu_j_per_output_tok",
        title="CPU",
        unit="J/token",
        kind="number",
        hidden=True,
        help="Energy per output token by the processors' counters, with memory where it has one.",
    ),
)
"""Of a run's energy beside that of its own boundary."""
IDLE_SHARE = Column(
    key="idle",
    title="Idle share",
    unit="%",
    kind="number",
    digits=0,
    hidden=True,
    help="Share of the run's energy that the idle power comes to; it is in the figure.",
)
IDLE = (
    Column(
        key="idle_power_w",
        title="Idle",
        unit="W",
        kind="number",
        hidden=True,
        help="What the energy's boundary draws with production stopped and no engine started.",
    ),
    IDLE_SHARE,
)


def runs(view: SweepView, frame: pl.DataFrame, name: str, title: str) -> Table:
    """Runs with their metrics, each at its load level."""
    shown = in_milliseconds(frame).with_columns(
        href=trial_href(pl.col("trial_id")),
        slo=pl.when("overloaded")
        .then(pl.lit("broken"))
        .when(pl.col("verdict") != "invalid")
        .then(slo_word(pl.col("slo_met"), pl.col("slo_sure"))),
        sure=confidence_percent(pl.when(pl.col("verdict") != "invalid").then(pl.col("slo_sure"))),
        why=pl.when(pl.col("verdict") == "invalid").then(reason_words()),
        reasons=pl.col("verdict_reasons").list.join(" "),
        verdict=pl.when("overloaded").then(pl.lit(OVERLOADED)).otherwise(pl.col("verdict").str.replace_all("_", " ")),
    )
    recomputed = "recomputed_share" in shown.columns and bool((shown["recomputed_share"] > 0).any())
    if recomputed:
        shown = shown.with_columns(recomputed=pl.col("recomputed_share") * 100)
    warmth = "temperature_c" in shown.columns and shown["temperature_c"].is_not_null().any()
    measured_idle = "idle_share" in shown.columns and shown["idle_share"].is_not_null().any()
    if measured_idle:
        shown = shown.with_columns(idle=pl.col("idle_share") * 100)
    stated = "state" in shown.columns and shown["state"].is_not_null().any()
    if stated:
        shown = shown.with_columns(pl.col("state").str.replace_all("_", " "))
    # A publication's objective may be a figure that our own runs keep beside better ones.
    metrics = dict.fromkeys([view.spec.objective.metric, *MEASURED])
    measured = [metric for metric in metrics if metric in shown.columns and shown[metric].is_not_null().any()]
    visible: tuple[str, ...] = ("output_tok_per_s", "goodput_request_per_s", "ttft_s_p50", "ttft_s_p95", "tpot_s_p95")
    if len(measured) <= len(visible) or not set(visible) & set(measured):
        visible = tuple(measured)
    several = view.runs["workload_name"].n_unique() > 1
    return table(
        shown,
        [
            Column(key="label", title="Config", kind="code"),
            *([Column(key="workload_name", title="Workload")] if several else []),
            Column(key="level_label", title="Load", kind="code"),
            Column(key="verdict", title="Verdict", kind="state"),
            *([Column(key="why", title="Why")] if shown["why"].is_not_null().any() else []),
            *([Column(key="slo", title="SLO", kind="state", help=SLO)] if shown["slo"].is_not_null().any() else []),
            *confidence_column(shown),
            *(STATE_COLUMNS if stated else ()),
            *((RECOMPUTED,) if recomputed else ()),
            *((TEMPERATURE,) if warmth else ()),
            *(IDLE if measured_idle else ()),
            *(column for column in BOUNDARIES if column.key in shown.columns and shown[column.key].is_not_null().any()),
            *[
                metric_column(metric, currency=view.spec.energy.currency, hidden=metric not in visible)
                for metric in measured
            ],
            *(
                Column(key=key, title=title, kind="number")
                for key, title in (("requests_ok", "Requests ok"), ("requests_failed", "Requests failed"))
                if shown[key].is_not_null().any()
            ),
            Column(key="reasons", title="Why, in full", hidden=True),
            Column(key="trial_id", title="Trial", kind="code", hidden=True),
        ],
        name=name,
        title=title,
        hrefs={"label": "href"},
        shown=SHOWN_RUNS,
    )


def trials(view: SweepView) -> Table:
    """Every trial with what became of it and where its time went."""
    shown = view.trials.with_columns(
        href=trial_href(pl.col("trial_id")),
        cause=pl.col("failure_cause").str.replace_all("_", " "),
        started=pl.col("started_at").dt.strftime("%H:%M:%S"),
        status=pl.when((pl.col("status") == "ok") & pl.col("left_out").is_not_null())
        .then(pl.lit(ENDED_EARLY))
        .otherwise(pl.col("status").replace("ok", COMPLETED)),
        launch=LAUNCH,
        requests=pl.when("holdout").then(pl.lit("fresh")).otherwise(pl.lit("same")),
    )
    times = [
        Column(key="duration_s", title="Duration", unit="s", kind="number", digits=1),
        Column(key="engine_start_s", title="Engine start", unit="s", kind="number", digits=1),
        Column(key="load_s", title="Load", unit="s", kind="number", digits=1),
        Column(key="production_start_s", title="Production start", unit="s", kind="number", digits=1, hidden=True),
        Column(key="orchestration_s", title="TokenPeak's own", unit="s", kind="number", digits=1, hidden=True),
        Column(key="production_downtime_s", title="Production down", unit="s", kind="number", digits=1, hidden=True),
        Column(key="kv_cache_tokens", title="KV cache", unit="tokens", kind="number", hidden=True),
        Column(key="started", title="Started", unit="UTC", hidden=True),
    ]
    return table(
        shown,
        [
            Column(key="trial_id", title="Trial", kind="code"),
            Column(key="label", title="Config", kind="code"),
            Column(key="hardware", title="Hardware", hidden=_one(shown, "hardware")),
            # Where each kind of hardware is one node, its name says nothing more.
            Column(
                key="node", title="Node", hidden=shown.n_unique(["hardware", "node"]) == shown["hardware"].n_unique()
            ),
            Column(key="launch", title="Launch of its config", kind="number", hidden=not (shown["launch"] > 1).any()),
            *([Column(key="requests", title="Requests")] if shown["holdout"].any() else []),
            Column(key="status", title="Status", kind="state", help=STATUS),
            *([Column(key="cause", title="Cause")] if shown["cause"].is_not_null().any() else []),
            Column(key="objective", title=view.metric_title, unit=view.metric.unit, kind="number"),
            *(times if shown["duration_s"].is_not_null().any() else []),
        ],
        name="trials",
        title="All trials",
        hrefs={"trial_id": "href"},
    )
