"""A run that `tokenpeak load --output` wrote, to be compared with other tools' runs."""

from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.fields import COUNTS, mean_lengths, workload_of
from tokenpeak.exchange.foreign import ForeignRun, JsonFormat
from tokenpeak.exchange.reading import read_text
from tokenpeak.records import RunRecord
from tokenpeak.spec.workload import ClosedLoad, ExternalLoad, OpenLoad


def read_run_record(path: Path) -> ForeignRun:
    """The run as an import: what its load client knew of itself stays in its own file."""
    try:
        record = RunRecord.model_validate_json(read_text(path))
        summary = record.summary
        workload = workload_of(mean_lengths({name: getattr(summary, name) for name in COUNTS}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArchiveError(f"{path}: {where}: {first['msg']}.") from error
    level = record.level
    return ForeignRun(
        config="as-run",
        workload=workload,
        level=ExternalLoad(
            external=True,
            concurrency=level.concurrency if isinstance(level, ClosedLoad) else None,
            rate_per_s=level.rate_per_s if isinstance(level, OpenLoad) else None,
            requests=level.requests,
        ),
        summary=summary,
        slo=record.slo,
        slo_met=record.slo_met,
        energy=record.energy,
        started_at=record.started_at,
        reasons=record.verdict.reasons,
    )


FORMAT = JsonFormat(
    name="tokenpeak",
    looks_like=lambda raw: isinstance(raw, dict) and {"run_index", "workload", "summary", "verdict"} <= raw.keys(),
    tool_of=lambda _: f"tokenpeak {version('tokenpeak')}",
    read=lambda path: ([read_run_record(path)], [], []),
)
