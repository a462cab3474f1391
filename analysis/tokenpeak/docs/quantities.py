"""Every metric and every exit status as tables of the reference."""

from tokenpeak.docs.tables import ReferenceTable, row
from tokenpeak.exit_status import ExitStatus
from tokenpeak.metrics import METRICS, STATISTICS
from tokenpeak.spec.schema import field_docstrings


def metric_tables() -> list[ReferenceTable]:
    """All metrics."""
    statistics = ", ".join(f"`{name}`" for name in STATISTICS)
    return [
        ReferenceTable(
            title="Metrics",
            says=f"A metric over requests has a column for each statistic of them: {statistics}, as in `ttft_s_p95`. "
            "The others have one value for a run.",
            heads=("Column", "Metric", "Of", "Unit", "Better", "Formula"),
            entries=tuple(
                row(
                    metric.name,
                    metric.title,
                    "requests" if metric.distribution else "a run",
                    metric.unit,
                    metric.direction if metric.direction != "neither" else "–",
                    metric.formula,
                )
                for metric in METRICS
            ),
        )
    ]


def status_tables() -> list[ReferenceTable]:
    """All exit statuses."""
    meanings = field_docstrings(ExitStatus)
    return [
        ReferenceTable(
            title="Exit statuses",
            heads=("Status", "Says"),
            entries=tuple(row(str(int(status)), meanings[status.name]) for status in ExitStatus),
        )
    ]
