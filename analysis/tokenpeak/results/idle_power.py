"""Idle power of a node: what each boundary draws with production stopped and before any engine starts."""

from collections.abc import Iterable

from tokenpeak.records import IdlePower, Phase, Series
from tokenpeak.results.energy import run_energies
from tokenpeak.results.power_sensor import PowerSensor

ASKED_S = 4.0
"""How long a node is left idle before its first engine of a sweep."""
SETTLES_S = 1.2
"""Of that, what the sampler's start and a board's average over a second take."""
PHASE = "idle_power"


def idle_power(telemetry: Series, phases: Iterable[Phase], sensor: PowerSensor) -> tuple[IdlePower, ...]:
    """The mean power of each boundary in the idle phase, with its interval; none where nothing measured it."""
    span = next((phase for phase in phases if phase.name == PHASE), None)
    if span is None:
        return ()
    from_s, to_s = span.started_s + SETTLES_S, span.started_s + span.duration_s
    found = run_energies(
        telemetry, from_s=from_s, to_s=to_s, output_tokens=0, tdp_w=None, tdp_boundary="node", sensor=sensor
    )
    return tuple(
        IdlePower(
            boundary=each.boundary,
            power_w=(each.energy_low_j + each.energy_high_j) / 2 / (to_s - from_s),
            low_w=each.energy_low_j / (to_s - from_s),
            high_w=each.energy_high_j / (to_s - from_s),
        )
        for each in found
        if each.energy_low_j is not None and each.energy_high_j is not None
    )
