"""Applies of a sweep's result: who ran what when, on which node, before, after, and what came of it."""

import polars as pl

from tokenpeak.records import ApplyRecord
from tokenpeak.report.blocks.block import Block, Column, answer, strong, table
from tokenpeak.report.view import SweepView
from tokenpeak.store.archive import Archive

COLUMNS = (
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


def blocks(view: SweepView) -> tuple[Block, ...]:
    """A sentence and a table; nothing of a sweep whose result was never applied, or that was read from Postgres."""
    records = Archive(view.origin).applies() if view.origin is not None else []
    if not records:
        return ()
    confirmed = [record for record in records if record.status == "confirmed" and record.kind == "apply"]
    frame = pl.DataFrame([_row(record) for record in records])
    nodes = len({record.node for record in confirmed})
    count = f"{len(confirmed)} of {len(records)}"
    return (
        answer("Applied to production: ", strong(count), f" were confirmed, on {nodes} node{'s' * (nodes != 1)}."),
        table(frame, COLUMNS, name="applies", title="Applies and rollbacks"),
    )


def _row(record: ApplyRecord) -> dict[str, object]:
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
