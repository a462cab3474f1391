"""The objective is one number of one run, or of all rates of a workload."""

from pathlib import Path

import numpy as np
import pytest

from archive_factory import make_archive, sweep_spec, trial_record
from tokenpeak.metrics import Direction
from tokenpeak.ranking.objective import metric_value, objective_direction, objective_value, pareto_front, trade_offs
from tokenpeak.records import Reason, TrialRecord, Verdict
from tokenpeak.report import open_archive
from tokenpeak.report.load import rates
from tokenpeak.spec.sweep import Objective, SweepSpec


def aiming_at(**objective: str) -> SweepSpec:
    """The synthetic spec with another objective."""
    return sweep_spec().model_copy(update={"objective": Objective(**objective)})


def test_objective_of_the_chosen_run() -> None:
    """Metric, statistic and level are read from the run that the spec names."""
    trial, _ = trial_record(sweep_spec())
    spec = aiming_at(metric="ttft_s_p95", level="rate=8/s")

    assert trial.runs[2].summary.ttft_s.p95 == objective_value(trial, spec)
    assert "lower" == objective_direction(spec)


@pytest.mark.parametrize(
    ("codes", "slo_met", "expected"),
    [((), False, 4.0), (("overloaded",), True, 4.0), (("late_dispatch",), False, 16.0), (("preemptions",), True, 16.0)],
)
def test_a_rate_above_one_that_broke_is_not_the_highest(
    tmp_path: Path, codes: tuple[str, ...], slo_met: bool, expected: float
) -> None:
    """Rates of 4 and 16 held, and 8 is in doubt: objective and rates page say the same, whatever the doubt is."""
    path = make_archive(tmp_path / "a", axes={"max_num_seqs": [64]}, gpus=["NVIDIA L4"], seconds=3).path
    (file,) = (path / "trials").glob("*.json")
    trial = TrialRecord.model_validate_json(file.read_text())
    verdict = Verdict(
        status="invalid" if codes else "valid", reasons=tuple(Reason(code=code, text="") for code in codes)
    )
    runs = tuple(
        run.model_copy(
            update={"slo_met": slo_met, "verdict": verdict}
            if run.level_label == "rate=8/s"
            else {"slo_met": True, "verdict": Verdict(status="valid")}
        )
        for run in trial.runs
    )
    file.write_text(trial.model_copy(update={"runs": runs}).model_dump_json())
    view = open_archive(path)
    (shown,) = rates.highest_rates(rates.open_runs(view, view.hardware[0], "short")).iter_rows(named=True)

    assert expected == shown["holds"]
    assert expected == objective_value(trial.model_copy(update={"runs": runs}), aiming_at(metric="max_rate_per_s"))


def test_cost_needs_a_price() -> None:
    """Without a price per hour there is no cost, rather than none at all."""
    trial, _ = trial_record(sweep_spec())
    spec = sweep_spec()
    free = spec.energy.model_copy(update={"price_per_node_hour": None})

    assert metric_value(trial.runs[0], "cost_per_1m_output_tok", free) is None
    speed = trial.runs[0].summary.output_tok_per_s
    assert speed is not None
    assert pytest.approx(2.5 / 3600 / speed * 1e6) == metric_value(trial.runs[0], "cost_per_1m_output_tok", spec.energy)


def test_front_of_speed_and_energy() -> None:
    """Fast and frugal configs stay, what is slower and hungrier goes, equals stay together."""
    values = {"fast": (100.0, 3.0), "frugal": (50.0, 1.0), "poor": (50.0, 2.0), "twin": (100.0, 3.0)}

    assert ("fast", "frugal", "twin") == pareto_front(values, ("higher", "lower"))


def test_front_is_what_comparing_all_with_all_finds() -> None:
    """Over three objectives with many equal values, it is the set of the definition."""
    directions: tuple[Direction, ...] = ("higher", "lower", "higher")
    signs = np.array([1, -1, 1])
    points = np.random.default_rng(5).integers(0, 6, (300, 3)).astype(float)
    signed = points * signs
    beaten = [any((other >= own).all() and (other > own).any() for other in signed) for own in signed]

    assert [index for index, lost in enumerate(beaten) if not lost] == list(
        pareto_front({index: tuple(point) for index, point in enumerate(points)}, directions)
    )


def test_trade_offs_are_of_geometric_means_and_leave_out_what_was_not_measured() -> None:
    """A config whose launch lacks an objective cannot be compared in it."""
    launches = {"fast": [(400.0, 2.0), (100.0, 2.0)], "frugal": [(90.0, 1.0)], "unmeasured": [(900.0, None)]}
    found = trade_offs(launches, ("higher", "lower"))

    assert {"fast", "frugal"} == set(found)
    assert pytest.approx((200.0, 2.0)) == found["fast"]
