"""Node differences: what a node's power limit, clocks, power and temperature show otherwise than the other nodes'."""

from collections.abc import Sequence
from statistics import fmean, median

from tokenpeak.results.node_launch import NodeLaunch
from tokenpeak.results.verdict import SLOWED_SHARE_LIMIT

SHARE_APART, WATTS_APART, DEGREES_APART = 0.03, 0.05, 8.0
"""From here on clocks and power limits, powers (all shares) and temperatures (°C) count as different."""


def differences(
    own: Sequence[NodeLaunch], limit_w: float | None, others: Sequence[NodeLaunch], limits_w: Sequence[float | None]
) -> tuple[str, ...]:
    """What is otherwise than on the other nodes, in words, the likeliest cause first; held against their medians."""
    found = []
    clock, power = mean_known([each.clock_mhz for each in own]), mean_known([each.power_w for each in own])
    slowed, warm = mean_known([each.slowed for each in own]), mean_known([each.temperature_c for each in own])
    usual_limit, usual_slowed = _median(limits_w), _median([each.slowed for each in others])
    usual_clock, usual_power = _median([each.clock_mhz for each in others]), _median([each.power_w for each in others])
    usual_warm = _median([each.temperature_c for each in others])
    if limit_w and usual_limit and _apart(limit_w, usual_limit, SHARE_APART):
        found.append(f"power limit {limit_w:.0f} W, {usual_limit:.0f} W on the others")
    if slowed is not None and usual_slowed is not None and slowed > SLOWED_SHARE_LIMIT >= usual_slowed:
        found.append(
            f"its driver held the clock back for heat or the power supply in {slowed:.0%} of the samples, "
            f"in {usual_slowed:.0%} on the others"
        )
    if clock and usual_clock and _apart(clock, usual_clock, SHARE_APART):
        found.append(f"clock {clock:.0f} MHz, {usual_clock:.0f} MHz on the others")
    if warm and usual_warm and warm - usual_warm > DEGREES_APART:
        found.append(f"{warm:.0f} °C, {usual_warm:.0f} °C on the others")
    if not found and power and usual_power and _apart(power, usual_power, WATTS_APART):
        found.append(f"draws {power:.0f} W, {usual_power:.0f} W on the others")
    return tuple(found)


def _apart(value: float, usual: float, share: float) -> bool:
    return abs(value / usual - 1) > share


def mean_known(values: Sequence[float | None]) -> float | None:
    """The mean of those that were measured."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
