"""Step 8: notebooks and the site, rendered from archives.

    from tokenpeak.report import open_archive
    sweep = open_archive("results/SWEEP_ID")

gives a sweep's frames: `sweep.trials`, `sweep.runs`, `sweep.series`, and `sweep.requests`, which is read when
collected.
"""

from tokenpeak.report.view import SweepView, open_archive

__all__ = ["SweepView", "open_archive"]
