"""The figure of arrivals shows every request of the run once: its area is their number, by the raw files."""

import itertools
import json
from pathlib import Path

import polars as pl

from archive_factory import make_archive
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.requests import distributions


def test_area_is_the_number_of_requests(tmp_path: Path) -> None:
    """Steps without a request are drawn too, at zero."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8, 64]}, requests=300)
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    drawn = distributions.over_time(view, ranked, distributions.requests_of(view, ranked)).filter(quantity="arrivals")
    raw = {}
    for path in sorted((archive.path / "trials").glob("*.json")):
        trial = json.loads(path.read_text())
        frame = pl.read_parquet(path.with_suffix(".requests.parquet"))
        measured = frame.filter(pl.col("phase") == "measured", pl.col("error").is_null(), pl.col("run_index") == 0)
        raw.setdefault(str(trial["config"]["choices"]["max_num_seqs"]), measured.height)

    assert drawn["series"].n_unique() == 2
    for (name,), own in drawn.group_by("series"):
        xs = own.sort("x")["x"].to_list()
        steps = [after - before for before, after in itertools.pairwise(xs)]
        assert max(steps) - min(steps) < 1e-9
        assert steps[0] >= 0.5
        assert abs(own["value"].sum() * steps[0] - raw[str(name)]) <= 1
