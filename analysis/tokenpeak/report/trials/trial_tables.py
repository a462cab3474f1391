"""Tables of trials and runs: all of them, those without a result, configs not tried, and applies of the result."""

import polars as pl

from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.records import OVERLOADED, ApplyRecord
from tokenpeak.report.blocks.block import Block, Column, Table, answer, strong, table
from tokenpeak.report.blocks.metric_columns import (
    COMPLETED,
    ENDED_EARLY,
    SLO,
    STATUS,
    confidence_column,
    confidence_percent,
    in_milliseconds,
    metric_column,
    slo_word,
    trial_href,
)
from tokenpeak.report.ranking.standings import measured_columns, reason_words
from tokenpeak.report.view import LAUNCH, SweepView
from tokenpeak.store.archive import Archive

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
APPLY_COLUMNS = (
    Column(key="when", title="When"),
    Column(key="node", title="Node"),
    Column(key="what", title="What"),
    Column(key="config", title="Config"),
    Column(key="status", title="Came of it"),
    Column(key="downtime_s", title="Production down", unit="s", kind="number"),
    Column(key="bake", title="Bake"),
    Column(key="before", title="Definition before", help="First digits of its SHA-256"),
    Column(key="after", title="Definition after", help="First digits of its SHA-256"),
    Column(key="message", title="Why", hidden=True),
    Column(key="who", title="Who", hidden=True),
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


def runs(view: SweepView, frame: pl.DataFrame, name: str, title: str) -> Table:
    """Runs with their metrics, each at its load level."""
    shown = in_milliseconds(frame).with_columns(
        href=trial_href(pl.col("trial_id")),
        slo=pl.when("overloaded")
        .then(pl.lit("broken"))
        .when(pl.col("verdict") != "invalid")
        .then(slo_word(pl.col("slo_met"), pl.col("slo_confidence"))),
        confidence=confidence_percent(pl.when(pl.col("verdict") != "invalid").then(pl.col("slo_confidence"))),
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
    metrics = dict.fromkeys([view.spec.objective.metric, *measured_columns(view)])
    measured = [metric for metric in metrics if metric in shown.columns and shown[metric].is_not_null().any()]
    visible: tuple[str, ...] = (
        throughput_column(view.spec),
        "goodput_request_per_s",
        "ttft_s_p50",
        "ttfat_s_p95",
        *view.latency_columns,
    )
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
        Column(key="orchestration_s", title="TokenPeak itself", unit="s", kind="number", digits=1, hidden=True),
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


def applies(view: SweepView) -> tuple[Block, ...]:
    """A sentence and a table; nothing of a sweep whose result was never applied, or that was read from Postgres."""
    records = Archive(view.origin).applies() if view.origin is not None else []
    if not records:
        return ()
    confirmed = [record for record in records if record.status == "confirmed" and record.kind == "apply"]
    frame = pl.DataFrame([_apply_row(record) for record in records])
    nodes = len({record.node for record in confirmed})
    count = f"{len(confirmed)} of {len(records)}"
    return (
        answer("Applied to production: ", strong(count), f" were confirmed, on {nodes} node{'s' * (nodes != 1)}."),
        table(frame, APPLY_COLUMNS, name="applies", title="Applies and rollbacks"),
    )


def _apply_row(record: ApplyRecord) -> dict[str, object]:
    simulated = " (simulated)" if record.simulated else ""
    return {
        "when": f"{record.started_at:%Y-%m-%d %H:%M} UTC",
        "node": record.node,
        "what": f"{record.kind}{simulated}",
        "config": record.config.name if record.config is not None else None,
        "status": record.status.replace("_", " ") + (f" in {record.failed_in}" if record.failed_in else ""),
        "downtime_s": record.downtime_s,
        "bake": record.bake.status.replace("_", " ") if record.bake is not None else None,
        "before": record.before.sha256[:12] if record.before is not None else None,
        "after": record.after.sha256[:12] if record.after is not None else None,
        "message": record.message,
        "who": record.who or None,
    }
