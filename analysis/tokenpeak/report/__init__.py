"""Report: the notebooks and the site, rendered from archives.

What a notebook imports is here. Two lines give a sweep's frames; a folder of sweeps stands for the newest of them, and
a packed archive or `postgres:SWEEP_ID` will do as well:

>>> from tokenpeak.report import EXAMPLE, open_archive
>>> sweep = open_archive(EXAMPLE)

`sweep.trials` has a row per launch, `sweep.runs` one per run of a workload at a load level, with every metric by the
name that the reference gives it; `sweep.series` has what was sampled over time, `sweep.requests` every request,
read when collected. All are Polars frames:

>>> best = sweep.runs.sort("output_tok_per_s", descending=True).head(1)
>>> best.select("label", "level_label").rows()
[('64 / 8192', 'concurrency=32')]
"""

from typing import TYPE_CHECKING, Any

from tokenpeak.report.opening import EXAMPLE, open_archive, open_archives
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView

if TYPE_CHECKING:
    from tokenpeak.report.blocks.captioned import enable_charts, figure

__all__ = ["EXAMPLE", "SweepView", "enable_charts", "figure", "open_archive", "open_archives", "rank"]


def __getattr__(name: str) -> Any:
    """What draws charts is imported when it is asked for: it takes a second, which opening an archive need not wait."""
    if name not in ("enable_charts", "figure"):
        raise AttributeError(f"tokenpeak.report has no {name!r}")
    from tokenpeak.report.blocks import captioned

    return getattr(captioned, name)
