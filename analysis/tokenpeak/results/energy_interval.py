"""Intervals for measured energies of archives that were recorded without one."""

from tokenpeak.records import RunRecord, Series, TrialRecord
from tokenpeak.results.power_sensor import PowerSensor


def with_energy_intervals(trial: TrialRecord, sensor: PowerSensor) -> TrialRecord:
    """The trial with an interval for each measured energy that has none and whose readings were kept.

    `sensor` is that of the node's boards. A run that proves too short for its readings loses its figure, as a new one
    would.
    """
    if all(not _lacks_interval(run) for run in trial.runs):
        return trial
    runs = tuple(_estimated_again(run, trial.series, sensor) if _lacks_interval(run) else run for run in trial.runs)
    return trial.model_copy(update={"runs": runs})


def _lacks_interval(run: RunRecord) -> bool:
    energy = run.energy
    return energy is not None and energy.source != "estimated_tdp" and energy.energy_low_j is None


def _estimated_again(run: RunRecord, series: Series, sensor: PowerSensor) -> RunRecord:
    if run.window_s is None or run.energy is None:
        return run
    from tokenpeak.results.energy import run_energies  # NumPy, which opening an archive does not need

    from_s, to_s = run.window_s
    found = run_energies(
        series,
        from_s=from_s,
        to_s=to_s,
        output_tokens=run.summary.output_tokens or 0,
        tdp_w=None,
        tdp_boundary=run.energy.boundary,
        sensor=sensor,
    )
    same = [each for each in found if (each.boundary, each.source) == (run.energy.boundary, run.energy.source)]
    return run.model_copy(update={"energy": same[0]}) if same else run
