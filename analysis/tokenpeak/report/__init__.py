"""Report: the notebooks and the site, rendered from archives.

Two lines give a sweep's frames, here those of a published sweep; a folder of sweeps stands for the newest of them, and
a packed archive or `postgres:SWEEP_ID` will do as well. `open_archives` gives all of several:

>>> from tokenpeak.report import open_archive
>>> sweep = open_archive("analysis/archives/v100-deepseek-r1-32b")

`sweep.trials` has a row per launch, `sweep.runs` one per run of a workload at a load level, with every metric by the
name that the reference gives it; `sweep.series` has what was sampled over time, `sweep.requests` every request,
read when collected. All are Polars frames:

>>> best = sweep.runs.sort("request_output_tok_per_s_mean", descending=True).head(2)
>>> best.select("label", "request_output_tok_per_s_mean").rows()
[('0.85 / 32 / 32768', 21.8), ('0.9 / 128 / 16384', 21.8)]
>>> sweep.trials.group_by("axis_max_num_seqs").len().sort("len").rows()
[('128', 3), ('64', 4), ('32', 6)]
"""

from tokenpeak.report.opening import open_archive, open_archives
from tokenpeak.report.view import SweepView

__all__ = ["SweepView", "open_archive", "open_archives"]
