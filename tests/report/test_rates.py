"""The sustainable rate, from runs that held, broke and were not judged."""

import json
import math
import statistics
from pathlib import Path

import polars as pl
import pytest
from scipy import stats

from archive_factory import make_archive
from tokenpeak.report import open_archive
from tokenpeak.report.load.curves import Measure, points
from tokenpeak.report.load.rates import highest_rates, highest_rates_table, open_runs
from tokenpeak.report.trials import trial_tables

TTFT = Measure(column="ttft_s_p95", title="TTFT p95", unit="ms", scale=1000.0)


def curve(runs: pl.DataFrame) -> pl.DataFrame:
    """The points of TTFT p95 in ms of runs at rates."""
    return points(runs.with_columns(x=pl.col("rate_per_s").cast(pl.Float64)), TTFT)


def runs(*rows: tuple[str, float, bool | None, bool]) -> pl.DataFrame:
    """Runs of configs at rates: label, rate, held, judged."""
    return pl.DataFrame(
        [
            {
                "config_id": label,
                "label": label,
                "rate_per_s": rate,
                "held": held,
                "broken": "TTFT p95 ≤ 500 ms" if held is False else None,
                "judged": judged,
                "ttft_s_p95": rate / 10,
                "slo": '{"ttft_p95_ms": 500.0}',
                "slo_met": held,
                "within_limits": '{"ttft_s_p95": 40}',
                "requests_sent": 40,
                "state": None,
                "duration_s": 10.0,
                "percentile_intervals": None,
            }
            for label, rate, held, judged in rows
        ],
        schema_overrides={
            "held": pl.Boolean,
            "broken": pl.String,
            "slo_met": pl.Boolean,
            "state": pl.String,
            "percentile_intervals": pl.String,
        },
    )


@pytest.mark.parametrize(
    ("rates", "holds", "breaks", "judged", "untold"),
    [
        pytest.param([(4, True), (8, False), (16, True)], 4.0, 8.0, 3, 0, id="above one that broke, none counts"),
        pytest.param([(4, True), (4, False)], None, 4.0, 1, 0, id="one launch that broke is enough"),
        pytest.param([(4, True), (8, None)], 4.0, None, 1, 1, id="an invalid run neither holds nor breaks"),
    ],
)
def test_the_limit_is_between_the_last_that_held_and_the_first_that_broke(
    rates: list[tuple[float, bool | None]], holds: float | None, breaks: float | None, judged: int, untold: int
) -> None:
    """A rate holds in every launch of it, below the first that broke; what was not judged is counted apart."""
    found = highest_rates(runs(*(("a", rate, held, held is not None) for rate, held in rates))).row(0, named=True)

    assert [holds, breaks, judged, untold] == [found[key] for key in ("holds", "breaks", "n", "untold")]


def test_confidence_is_by_the_requests_of_all_launches() -> None:
    """Of two launches with 40 of 40 within a p95, as of one with 80 of 80."""
    (once, twice) = (
        highest_rates(runs(*[("a", 4, True, True)] * launches))["confidence"].item() for launches in (1, 2)
    )

    assert pytest.approx([1 - 0.95**40, 1 - 0.95**80]) == [once, twice]


def test_the_limit_that_broke_is_named(tmp_path: Path) -> None:
    """At the first rate beyond: limits by their percentile or by too many requests beyond, and a queue that grew."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    path = next((archive.path / "trials").glob("*.json"))
    trial = json.loads(path.read_text())
    slo = {"ttft_p95_ms": 500.0, "tpot_p95_ms": 50.0, "latency_p99_ms": 60000.0}
    for run, values in enumerate(({}, {}, {"tpot_s": 0.06}, {"tpot_s": 0.06, "ttft_s": 2.0})):
        trial["runs"][run] |= {"slo": slo, "slo_met": not values, "verdict": {"status": "valid", "reasons": []}}
        summary = trial["runs"][run]["summary"]
        summary["within_limits"] = {}
        for metric in ("ttft_s", "tpot_s", "latency_s"):
            summary[metric]["p95"] = summary[metric]["p99"] = values.get(metric, 0.01)
    trial["runs"][2]["summary"]["within_limits"] = {"ttft_s_p95": 1}
    path.write_text(json.dumps(trial))
    view = open_archive(archive.path)
    runs = open_runs(view, view.hardware[0], "short")
    shown = highest_rates_table(view.hardware[0], highest_rates(runs))

    assert [None, "TTFT p95 ≤ 500 ms, TPOT p95 ≤ 50 ms", "TTFT p95 ≤ 500 ms, TPOT p95 ≤ 50 ms"] == runs[
        "broken"
    ].to_list()
    assert "What broke there" in [column.title for column in shown.columns]
    assert "TTFT p95 ≤ 500 ms, TPOT p95 ≤ 50 ms" in [cell["text"] for cell in shown.rows[0]]


def test_points_of_several_launches_have_the_spread_of_all_configs() -> None:
    """Geometric means with a 95% interval by Student's t; the spread is pooled over the configs at a rate."""
    values = {"a": (100.0, 110.0), "b": (200.0, 190.0, 210.0)}
    rows = runs(*((label, 4, True, True) for label, own in values.items() for _ in own))
    speeds = [value for own in values.values() for value in own]
    found = points(
        rows.with_columns(x=pl.lit(4.0), output_tok_per_s=pl.Series(speeds)),
        Measure(column="output_tok_per_s", title="", unit="tok/s"),
    )
    logs = {label: [math.log(value) for value in own] for label, own in values.items()}
    squares = sum((each - statistics.fmean(own)) ** 2 for own in logs.values() for each in own)
    half = stats.t.ppf(0.975, 3) * math.sqrt(squares / 3)

    for label, own in logs.items():
        (row,) = found.filter(series=label).iter_rows(named=True)
        mean, reach = statistics.fmean(own), half / math.sqrt(len(own))
        expected = [math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)]
        assert pytest.approx(expected) == [row["value"], row["low"], row["high"]]


def test_an_overloaded_run_breaks_the_slo_and_ranks_nothing(tmp_path: Path) -> None:
    """Too high a rate is a point of the curve that did not hold; a run that the client spoilt is none."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    path = next((archive.path / "trials").glob("*.json"))
    trial = json.loads(path.read_text())
    for run, code in ((2, "overloaded"), (3, "late_dispatch")):
        trial["runs"][run]["verdict"] = {"status": "invalid", "reasons": [{"code": code, "text": code}]}
    path.write_text(json.dumps(trial))
    view = open_archive(archive.path)
    runs = open_runs(view, view.hardware[0], "short").sort("rate_per_s")
    shown = trial_tables.runs(view, runs, "runs", "Runs")
    words = [[row[index]["text"] for row in shown.rows] for index in (2, 4)]

    assert [True, False, None] == runs["held"].to_list()
    assert [["valid", "overloaded", "invalid"], ["held, not proven", "broken", "–"]] == words
    assert [4.0, 8.0] == curve(runs)["x"].to_list()
