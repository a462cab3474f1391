"""The table by LoRA adapter on the page of loads: its figures from single requests, and none in older archives."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.archive_factory import make_archive

from tokenpeak.report import open_archive
from tokenpeak.report.load.adapters import adapter_table, by_adapter
from tokenpeak.report.ranking.standings import rank

ADAPTERS = {"adapters": {"base": 1, "sql": 3}}


def test_figures_are_those_of_each_adapters_requests(tmp_path: Path) -> None:
    """Counts, failures, percentiles by NumPy, and rates that add up to the run's."""
    archive = make_archive(tmp_path / "20261120-220000-mixed", axes={"max_num_seqs": [8]}, workload=ADAPTERS)
    for path in (archive.path / "trials").glob("*.parquet"):
        names = pl.when(pl.col("request_index") % 4 == 0).then(pl.lit("base")).otherwise(pl.lit("sql"))
        # The third of each run failed.
        failed = pl.when(pl.col("request_index") == 3).then(pl.lit("http_500"))
        pl.read_parquet(path).with_columns(adapter=names, error=failed).write_parquet(path)
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    workload = view.spec.workloads[0].workload.name
    rows = by_adapter(view, ranked, workload)
    raw = view.requests.filter(pl.col("phase") == "measured").collect()

    assert rows.height == 2 * view.runs.filter(hardware=ranked.hardware)["level_label"].n_unique()
    for (level,), own in rows.group_by("level"):
        run = view.runs.filter(hardware=ranked.hardware, level_label=level).row(0, named=True)
        assert own["output_tok_per_s"].sum() == pytest.approx(run["output_tok_per_s"])
        for row in own.iter_rows(named=True):
            sent = raw.filter(trial_id=run["trial_id"], run_index=run["run_index"], adapter=row["adapter"])
            ok = sent.filter(pl.col("error").is_null())
            begun = ok["due_s" if run["level_kind"] == "open" else "sent_s"]
            assert (sent.height, sent.height - ok.height) == (row["n"], row["failed"])
            wanted = np.quantile(((ok["first_token_s"] - begun) * 1000).to_numpy(), [0.5, 0.99])
            assert list(wanted) == pytest.approx([row["ttft_50"], row["ttft_99"]])
    shown = adapter_table(view, ranked, workload)
    assert shown is not None
    assert rows.height == len(shown.rows)


def test_an_archive_without_the_column_is_read(tmp_path: Path) -> None:
    """Its adapters are not known, and no table is shown."""
    archive = make_archive(tmp_path / "20261120-220000-older", axes={"max_num_seqs": [8]}, workload=ADAPTERS)
    view = open_archive(archive.path)

    assert [None] == view.requests.select("adapter").unique().collect()["adapter"].to_list()
    assert adapter_table(view, rank(view, view.hardware[0]), view.spec.workloads[0].workload.name) is None
