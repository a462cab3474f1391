"""One result from several load hosts that each offered a part of the same job.

Requests are joined on the trial's clock, so the hosts' clocks must agree (NTP) as well as their results are to. Metrics
and the SLO are computed anew from all requests; the client's side is that of all hosts together, its loop lag the worst
host's; a reason against one host's run is a reason against the whole, except those that only the whole can show.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tokenpeak.errors import LoadError
from tokenpeak.load import rows
from tokenpeak.load.job import write_atomically
from tokenpeak.load.offered import from_due
from tokenpeak.load.summary import distribution, requests_needed, slo_met, summarize, turn_summaries
from tokenpeak.records import ClientHealth, RunRecord, Verdict
from tokenpeak.workload import ExternalLoad

OF_THE_WHOLE = ("too_few_requests", "concurrency_not_reached")


def merge(folders: Sequence[Path], output_dir: Path) -> tuple[RunRecord, ...]:
    """Join the outputs of the parts of a job into one of the same form; raises LoadError when they do not fit."""
    parts = [_read(folder) for folder in folders]
    kinds = {tuple((record.run_index, record.level_label) for record in records) for records, _ in parts}
    if len(kinds) != 1:
        raise LoadError(f"The load hosts' outputs are of different jobs: {', '.join(map(str, folders))}.")
    output_dir.mkdir(parents=True, exist_ok=True)
    records, tables = [], []
    for number in range(len(parts[0][0])):
        record, table = _together([(found[number], requests) for found, requests in parts])
        records.append(record)
        tables.append(table)
    rows.write(output_dir / "requests.parquet", tables)
    write_atomically(output_dir / "runs.json", json.dumps([record.model_dump(mode="json") for record in records]))
    write_atomically(output_dir / "metrics.json", (folders[0] / "metrics.json").read_text())
    return tuple(records)


def _read(folder: Path) -> tuple[list[RunRecord], pl.DataFrame]:
    try:
        records = [RunRecord.model_validate(raw) for raw in json.loads((folder / "runs.json").read_bytes())]
        return records, pl.read_parquet(folder / "requests.parquet")
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise LoadError(f"{folder} does not hold a load job's output: {error}") from error


def _together(parts: Sequence[tuple[RunRecord, pl.DataFrame]]) -> tuple[RunRecord, pl.DataFrame]:
    first = min((record for record, _ in parts), key=lambda record: record.started_s or 0.0)
    moments = [pl.col(name) for name in ("due_s", "sent_s", "first_byte_s", "first_token_s", "last_token_s")]
    table = pl.concat(
        requests.filter(pl.col("run_index") == record.run_index).with_columns(
            [moment + ((record.started_s or 0.0) - (first.started_s or 0.0)) for moment in moments]
        )
        for record, requests in parts
    ).sort("request_index")
    records = [record for record, _ in parts]
    assert not isinstance(first.level, ExternalLoad)
    late = from_due(first.level)
    summary = summarize(table, first.slo, from_due=late)
    dispatched = table.filter(pl.col("sent_s").is_not_null())
    cpu = sum(record.client.cpu_s or 0.0 for record in records)
    tokens = int(table["output_tokens"].sum())
    client = ClientHealth(
        processes=sum(record.client.processes for record in records),
        cpu_s=cpu,
        cpu_per_token_s=cpu / tokens if tokens else None,
        dispatch_delay_s=distribution((dispatched["sent_s"] - dispatched["due_s"]).to_numpy()),
        loop_lag_s=max((record.client.loop_lag_s for record in records), key=lambda found: found.p99 or 0.0),
    )
    needed = max((requests_needed(percentile) for _, percentile, _ in first.slo.limits()), default=1)
    reasons = {
        reason.code: reason
        for record in records
        for reason in record.verdict.reasons
        if reason.code not in OF_THE_WHOLE or (reason.code == "too_few_requests" and table.height < needed)
    }
    record = first.model_copy(
        update={
            "summary": summary,
            "slo_met": slo_met(summary, first.slo),
            "client": client,
            "turns": turn_summaries(table, from_due=late),
            "failure_messages": {k: v for found in records for k, v in found.failure_messages.items()},
            "verdict": Verdict(status="invalid" if reasons else "valid", reasons=tuple(reasons.values())),
        }
    )
    return record, table
