"""Node launch: what a trial's run and telemetry give of its node."""

from collections.abc import Mapping
from typing import Any

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.records import Failure, Reason, Series, TrialRecord, Verdict
from tokenpeak.results.node_launch import fall_of, launch_of, speed_metric
from tokenpeak.spec.sweep import Objective, SweepSpec

SPEC = sweep_spec()


def trial(columns: Mapping[str, tuple[float | None, ...]] | None = None, **run: Any) -> TrialRecord:
    """A launch whose objective's run is from 10 s to 20 s, with a sample every five seconds."""
    record, _ = trial_record(SPEC, noise=0)
    first = record.runs[0]
    summary = first.summary.model_copy(update={"duration_s": 10.0, **run.pop("summary", {})})
    first = first.model_copy(update={"measured_from_s": 10.0, "summary": summary, **run})
    series = Series(t_s=(5.0, 10.0, 15.0, 20.0, 25.0), columns=dict(columns or {}))
    return record.model_copy(update={"runs": (first, *record.runs[1:]), "series": series})


def asked(level: str) -> SweepSpec:
    """The spec with this level as its objective."""
    return SPEC.model_copy(update={"objective": Objective(level=level)})


def test_telemetry_is_read_within_the_run_over_all_boards() -> None:
    """Clock is the mean of boards, power their sum, temperature the hottest; the worst board says what was slowed."""
    found = launch_of(
        trial(
            {
                "gpu0_sm_clock_mhz": (210, 1400, 1400, 1400, 210),
                "gpu1_sm_clock_mhz": (210, 1000, None, 1200, 210),
                "gpu0_power_w": (50, 300, 310, 320, 50),
                "gpu1_power_w": (50, 200, 200, 200, 50),
                "gpu0_temperature_c": (40, 60, 70, 65, 90),
                "gpu1_temperature_c": (40, 60, 61, 62, 40),
                "gpu0_slowed": (1, 0, 0, 0, 1),
                "gpu1_slowed": (0, 0, 1, 1, 0),
                "node_power_w": (900, 900, 900, 900, 900),
            }
        ),
        SPEC,
    )

    assert (1250, 510, 70) == (found.clock_mhz, found.power_w, found.temperature_c)
    assert pytest.approx(2 / 3) == found.slowed


def test_speed_is_throughput_of_a_closed_loop_and_the_inverse_of_tpot_at_a_rate() -> None:
    """At a rate the throughput is what was asked for, whatever the node."""
    record = trial()
    rate = record.runs[1]

    assert record.runs[0].summary.output_tok_per_s == launch_of(record, SPEC).speed
    assert 1 / (rate.summary.tpot_s.mean or 1) == launch_of(record, asked(rate.level_label)).speed
    assert ["output_tok_per_s", "tpot_s"] == [speed_metric(run) for run in record.runs[:2]]
    assert launch_of(record, asked(rate.level_label)).fall is None


def test_a_run_that_a_hot_board_spoilt_still_shows_its_speed() -> None:
    """Heat is what is looked for; a run that describes the load client shows nothing, and says why."""
    hot = Reason(code="clock_throttled", text="GPU 0 was slowed down.")
    client = Reason(code="client_late", text="The load client was late.")
    kept = launch_of(trial(verdict=Verdict(status="invalid", reasons=(hot,))), SPEC)
    lost = launch_of(trial(verdict=Verdict(status="invalid", reasons=(hot, client))), SPEC)

    assert kept.speed is not None
    assert (None, "The load client was late.") == (lost.speed, lost.failure)


def test_a_launch_that_failed_has_its_cause_and_no_speed() -> None:
    """The cause stands for the figure."""
    record, _ = trial_record(SPEC)
    failure = Failure(phase="engine_start", cause="out_of_memory", message="")
    failed = record.model_copy(update={"status": "failed", "failure": failure})

    assert (None, "out_of_memory") == (launch_of(failed, SPEC).speed, launch_of(failed, SPEC).failure)


def test_a_fall_is_between_the_thirds_of_a_run_without_its_ends() -> None:
    """A run that loses a fifth in its last third fell by a fifth; its first and last seconds do not count."""
    windows = [10.0, 100.0, 100.0, 100.0, 90.0, 90.0, 90.0, 80.0, 80.0, 80.0, 5.0]

    assert pytest.approx(-0.2231, abs=1e-4) == fall_of(windows)
    assert fall_of(windows[:7]) is None
    assert fall_of([0.0] * 12) is None
