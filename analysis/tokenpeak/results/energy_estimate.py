"""The energy between two moments from one sensor's readings, and how well it is known.

A reading is older than the moment at which it is read: by up to an update, by half of one in the mean. A counter is
read at both ends, so its error does not grow with the time between; that of sampled power grows with its root. The
interval holds what can be seen: readings' age, changes between readings, time that no reading covers. The sensor's own
calibration (NVIDIA states ±5%) is not in it: it moves all configs of a board alike.

An engine's power goes from one level to another as it prefills and decodes. It is described by its variance and by how
long a level lasts: what is left of a deviation after a time t is e^(-t/lasts). Readings that come every so often and
look for a part of that time miss what changes faster. What they miss is the part of the power's spectrum that folds
onto zero: at each multiple k of the readings' rate, the spectrum 2·variance·lasts ÷ (1 + (2π·k·lasts ÷ every)²) times
sinc²(k · attended).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tokenpeak.results.power_sensor import PowerSensor

Floats = npt.NDArray[np.float64]

LASTS_S = 0.06
"""How long a level lasts where readings do not show it: a prefill of a few thousand tokens, the shorter of the two."""
FEWEST_READINGS = 5
USUAL = 0.1
"""Of the mean power: standard deviation of its changes where a run is too short to show it."""
USUAL_WEIGHT = 4
"""Readings that the usual change counts as."""
MOST = 0.25
"""Of the mean power: no engine changes by more, so more is an error of the readings."""
_MULTIPLES = np.arange(1, 401, dtype=float)
_LEAST_LEFT = 0.01


def missed_j2_per_s(variance_w2: float, lasts_s: float, every_s: float, attended: float) -> float:
    """Variance that each second adds to an energy by readings every `every_s` that look for a share of that time."""
    spectrum = 2 * variance_w2 * lasts_s / (1 + (2 * np.pi * _MULTIPLES * lasts_s / every_s) ** 2)
    return float(2 * np.sum(spectrum * np.sinc(_MULTIPLES * attended) ** 2))


def changes_between(watts: Floats, mean_w: float, apart_s: float) -> tuple[float, float]:
    """The variance, W², and how long a level lasts, s, by readings `apart_s` from each other.

    Readings one apart differ by 1 - left of the variance, those two apart by 1 - left². A few readings may have missed
    what changes the power: they are mixed with the usual change.
    """
    near = np.diff(watts)
    usual_w2 = (1.5 * USUAL * mean_w) ** 2
    semivariance = (float(np.sum(near**2)) / 2 + USUAL_WEIGHT * usual_w2) / (near.size + USUAL_WEIGHT)
    left = float(np.exp(-apart_s / LASTS_S))
    if watts.size >= FEWEST_READINGS and np.any(near):
        far = watts[2:] - watts[:-2]
        seen = float(np.mean(far**2) / np.mean(near**2)) - 1
        left = (far.size * seen + USUAL_WEIGHT * left) / (far.size + USUAL_WEIGHT)
    left = float(np.clip(left, _LEAST_LEFT, 1 - _LEAST_LEFT))
    return semivariance / (1 - left), apart_s / -float(np.log(left))


CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
AROUND = 6
"""Readings to either side of an end that show the power before and after it."""
STRIDE_S = 1.0
"""Rises of a counter over so long show the power's changes: over less, the readings' age would hide them."""
PAUSE = 0.08
"""Of a reading's window, how much idle time next to a run it may hide: it lowers the run's first or last readings."""
WIDE = 2.0
"""Windows as long as so many readings are apart can be laid end to end."""
COVER_S = 2.5
"""Readings must begin and end within this of the run, and sampled power may be silent for twice as long."""


@dataclass(frozen=True, kw_only=True)
class EnergyEstimate:
    """An energy with the variance of its error: what its ends cost, and what each second adds."""

    energy_j: float
    ends_j2: float
    per_s_j2: float
    duration_s: float

    @property
    def margin_j(self) -> float:
        """Half the width of the interval of CONFIDENCE."""
        return Z * float(np.sqrt(self.ends_j2 + self.per_s_j2 * self.duration_s))

    def needed_s(self, share: float) -> float:
        """How long a run at this power must be for a margin of `share` of its energy."""
        power_w = self.energy_j / self.duration_s
        if power_w <= 0:
            return inf
        wanted = (share * power_w / Z) ** 2
        # wanted · T² = ends + per_s · T
        return float((self.per_s_j2 + np.sqrt(self.per_s_j2**2 + 4 * wanted * self.ends_j2)) / (2 * wanted))


def added(estimates: Sequence[EnergyEstimate]) -> EnergyEstimate:
    """Several boards together; their errors are independent."""
    return EnergyEstimate(
        energy_j=sum(each.energy_j for each in estimates),
        ends_j2=sum(each.ends_j2 for each in estimates),
        per_s_j2=sum(each.per_s_j2 for each in estimates),
        duration_s=estimates[0].duration_s,
    )


def from_counter(
    t_s: Floats, counter_j: Floats, sensor: PowerSensor, from_s: float, to_s: float
) -> EnergyEstimate | None:
    """Joules by an energy counter; None when it does not cover the time, went backwards, or stood still."""
    moments, joules = _known(t_s, counter_j)
    moments = moments - sensor.counter_update_s / 2
    if moments.size < 2 or not _covered(moments, from_s, to_s) or np.any(np.diff(joules) < 0):
        return None
    if joules[-1] == joules[0]:
        return None
    inside = (moments > from_s) & (moments < to_s)
    variance_w2 = _counter_changes(moments[inside], joules[inside], sensor.counter_update_s)
    ends = [_at(moments, joules, end, sensor.counter_update_s, variance_w2) for end in (from_s, to_s)]
    return EnergyEstimate(
        energy_j=ends[1][0] - ends[0][0],
        ends_j2=ends[0][1] + ends[1][1],
        per_s_j2=missed_j2_per_s(variance_w2, LASTS_S, sensor.counter_update_s, sensor.attended),
        duration_s=to_s - from_s,
    )


def from_power(t_s: Floats, power_w: Floats, sensor: PowerSensor, from_s: float, to_s: float) -> EnergyEstimate | None:
    """Joules by sampled power; None when the samples do not cover the time, or were silent in it for long."""
    read_s, watts = _known(t_s, power_w)
    # A reading covers a window that ended up to an update ago: this is its end, and its middle.
    ends_s = read_s - sensor.update_s / 2
    moments = ends_s - sensor.window_s / 2
    if moments.size < 2 or not _covered(moments, from_s, to_s):
        return None
    gaps = np.diff(moments)
    if np.any(gaps[(moments[1:] > from_s) & (moments[:-1] < to_s)] > 2 * COVER_S):
        return None
    inside = (moments > from_s) & (moments < to_s)
    gap_s = float(np.mean(gaps[max(0, int(np.argmax(inside)) - 1) :][: max(1, int(inside.sum()))]))
    if sensor.window_s >= WIDE * gap_s and to_s - from_s >= sensor.window_s and ends_s[-1] >= to_s:
        return _from_windows(ends_s, watts, gap_s, sensor, from_s, to_s)
    t = np.concatenate(([from_s], moments[inside], [to_s]))
    p = np.interp(t, moments, watts)
    variance_w2, lasts_s = changes_between(watts[inside], float(np.mean(p)), gap_s)
    every_s = max(sensor.update_s, gap_s)
    # Each reading's own age moves it; at the ends the window blurs a step, and nobody sees when it came.
    aged = sensor.update_s**2 / 12 * float(np.sum(np.diff(p) ** 2))
    blur_s = max(sensor.window_s, gap_s)
    sides = [np.interp([end - blur_s / 2, end + blur_s / 2], moments, watts) for end in (from_s, to_s)]
    return EnergyEstimate(
        energy_j=float(np.trapezoid(p, t)),
        ends_j2=aged
        + 2 * (PAUSE * sensor.window_s * float(np.mean(p))) ** 2
        + sum((float(after - before) * blur_s / 8) ** 2 for before, after in sides),
        per_s_j2=missed_j2_per_s(variance_w2, lasts_s, every_s, min(1.0, sensor.window_s / every_s)),
        duration_s=to_s - from_s,
    )


def _from_windows(
    ends_s: Floats, watts: Floats, gap_s: float, sensor: PowerSensor, from_s: float, to_s: float
) -> EnergyEstimate:
    """Joules by readings whose windows are laid end to end, from both ends of the run to its middle.

    The windows hide nothing next to the run. What they leave in the middle is shorter than one: it has the power of the
    window around it.
    """
    window_s = sensor.window_s
    number = int((to_s - from_s) / window_s + 1e-9)
    early = number // 2
    tiles_s = np.concatenate(
        (from_s + window_s * np.arange(1, early + 1), to_s - window_s * np.arange(number - early)[::-1])
    )
    left_s = to_s - from_s - number * window_s
    around_s = from_s + early * window_s + left_s / 2 + window_s / 2
    shown = np.interp(tiles_s, ends_s, watts)
    energy_j = float(window_s * np.sum(shown) + left_s * np.interp(around_s, ends_s, watts))
    slopes = np.interp(tiles_s + gap_s / 2, ends_s, watts) - np.interp(tiles_s - gap_s / 2, ends_s, watts)
    aged = sensor.update_s**2 / 12 * float(np.sum((slopes / gap_s * window_s) ** 2))
    variance_w2 = _changes_of_means(shown, energy_j / (to_s - from_s), window_s)
    return EnergyEstimate(
        energy_j=energy_j,
        ends_j2=aged + 2 * LASTS_S * variance_w2 * left_s * (1 - left_s / window_s),
        # A line stands for what is between two readings, at each window's ends: of the most, two thirds in the mean,
        # and half of that where the next window begins as far between two readings and takes back what this one has.
        per_s_j2=variance_w2 * gap_s**2 / 36 / window_s,
        duration_s=to_s - from_s,
    )


def _known(t_s: Floats, column: Floats) -> tuple[Floats, Floats]:
    """The readings that are there, one for each moment."""
    there = np.isfinite(column)
    moments, first = np.unique(t_s[there], return_index=True)
    return moments, column[there][first]


def _covered(moments: Floats, from_s: float, to_s: float) -> bool:
    return bool(moments[0] <= from_s + COVER_S and moments[-1] >= to_s - COVER_S)


def _at(moments: Floats, joules: Floats, at_s: float, update_s: float, variance_w2: float) -> tuple[float, float]:
    """A counter's value at a moment, on the line between its readings and onward beyond them, and its variance."""
    after = int(np.clip(np.searchsorted(moments, at_s), 1, moments.size - 1))
    before = after - 1
    gap_s = float(moments[after] - moments[before])
    share = float((at_s - moments[before]) / gap_s)
    value = joules[before] + share * (joules[after] - joules[before])
    rises = [
        (joules[last] - joules[first]) / (moments[last] - moments[first])
        for first, last in ((max(0, after - AROUND), after), (before, min(moments.size - 1, before + AROUND)))
    ]
    # Readings next to each other may be equally old, so that the line between them is as far off as they are.
    aged = update_s**2 / 12 * float(np.mean(rises)) ** 2
    # The load may have begun or ended anywhere between the two readings, and its power changes all the time.
    beyond_s = gap_s * max(1.0, abs(share), abs(1 - share))
    bend = min(1.0, 4 * share * (1 - share)) if 0 <= share <= 1 else 1.0
    step = ((rises[1] - rises[0]) * beyond_s) ** 2 / 48 * bend
    return float(value), aged + step + variance_w2 * beyond_s**2 / 24 * bend


def _counter_changes(moments: Floats, joules: Floats, update_s: float) -> float:
    """Variance of the power, by a counter's rise from one second to the next, W²."""
    if moments.size < 2:
        return 0.0  # The ends' own age is far more than 5% of so short a run.
    stride = max(1, round(STRIDE_S / float(np.median(np.diff(moments)))))
    t, j = moments[::stride], joules[::stride]
    mean_w = float((joules[-1] - joules[0]) / (moments[-1] - moments[0]))
    gap_s = float(np.mean(np.diff(t))) if t.size > 1 else STRIDE_S
    # The age of the readings makes even a steady power seem to change from one rise to the next.
    seeming_w2 = update_s**2 / 4 * mean_w**2 / gap_s**2
    return _changes_of_means(np.diff(j) / np.diff(t), mean_w, gap_s, seeming_w2)


def _changes_of_means(means_w: Floats, mean_w: float, over_s: float, seeming_w2: float = 0.0) -> float:
    """Variance of the power by its means over equal times in turn, W², less what only seems to change them."""
    if means_w.size < FEWEST_READINGS - 1:
        return (1.5 * USUAL * mean_w) ** 2
    spread_w2 = float(np.mean(np.diff(means_w) ** 2) / 2)
    # Over a time in which many levels follow each other a mean varies by 2 · lasts ÷ time of what the levels do.
    return min(max(spread_w2 - seeming_w2, spread_w2 / 6) * over_s / (2 * LASTS_S), (MOST * mean_w) ** 2)
