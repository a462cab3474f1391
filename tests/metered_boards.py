"""Boards of known power, drawn millisecond by millisecond, and what the sensors of four GPU families show of it.

Sensors are written here from their published description (arXiv 2312.02741) and share no code with the product.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenpeak.records import Energy, Series
from tokenpeak.results.energy import run_energies
from tokenpeak.results.power_sensor import power_sensor

Floats = npt.NDArray[np.float64]
STEP_S = 0.001
FAMILIES = {
    "7.0": (300, 0.01, 0.02, 0.02, 0.5),
    "7.5": (70, 0.1, 0.1, 0.1, 1.0),
    "8.0": (400, 0.025, 0.1, 0.1, 0.25),
    "9.0": (700, 1.0, 0.1, 0.1, 0.25),
}
"""Volta, Turing, GA100 and Hopper by compute capability: rated power, window and update of a power reading, the
counter's update, and the share of the time at which the sensor looks."""
BEGINS_S = 8.0
CLOCKS_APART = 0.005
"""Of an update: how far one board's is from that of its family."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What an engine draws: shares of the rated power as it decodes and prefills, and how long each takes."""

    decode: float
    prefill: float
    prefill_s: float
    decode_s: float

    @classmethod
    def any(cls, random: np.random.Generator) -> "Load":
        """One of those that engines show."""
        decode = random.uniform(0.35, 0.8)
        prefill = min(0.97, decode + random.uniform(0, 0.4))
        return cls(
            decode=decode, prefill=prefill, prefill_s=random.uniform(0.02, 0.3), decode_s=random.uniform(0.05, 1.5)
        )


def power_w(
    random: np.random.Generator, samples: int, rated_w: float, from_s: float, to_s: float, load: Load | None
) -> Floats:
    """Idle, then a load, any where none is given, between decode and prefill at random, with noise and a slow drift."""
    load = Load.any(random) if load is None else load
    drawn = np.full(samples, 0.15 * rated_w)
    at_s = from_s
    while at_s < to_s:
        turns_s = at_s + random.exponential(load.decode_s)
        ends_s = turns_s + random.exponential(load.prefill_s)
        first, turn, end = (int(min(to_s, moment) / STEP_S) for moment in (at_s, turns_s, ends_s))
        drawn[first:turn] = load.decode * rated_w
        drawn[turn:end] = load.prefill * rated_w
        at_s = ends_s
    drawn *= 1 + 0.05 * random.uniform(-1, 1) * (np.arange(samples) * STEP_S - from_s) / 60
    return drawn + random.normal(0, 0.02 * rated_w, samples)


def moments(random: np.random.Generator, until_s: float) -> Floats:
    """When the sampler came to look: five times a second, a little late, now and then much."""
    due = np.arange(2 + random.uniform(0, 0.2), until_s, 0.2)
    late = np.where(random.random(due.size) < 0.01, random.uniform(0, 0.1, due.size), 0)
    return np.sort(due + random.normal(0, 0.005, due.size) + late)


@dataclass(frozen=True, kw_only=True)
class MeteredRun:
    """A run of known energy, and what was found of it."""

    capability: str
    by_counter: bool
    duration_s: float
    truth_j: float
    found: Energy

    @property
    def holds(self) -> bool:
        """Whether the interval holds the truth."""
        assert self.found.energy_low_j is not None and self.found.energy_high_j is not None
        return self.found.energy_low_j <= self.truth_j <= self.found.energy_high_j

    @property
    def error(self) -> float:
        """Of the figure, as a share of the truth."""
        assert self.found.energy_j is not None
        return abs(self.found.energy_j / self.truth_j - 1)


def metered_run(
    random: np.random.Generator,
    capability: str,
    duration_s: float,
    *,
    by_counter: bool,
    load: Load | None = None,
    warmer_w: Floats | float = 0.0,
) -> MeteredRun:
    """A load on a board, found through its counter or its power reading.

    `warmer_w` is drawn besides, at each millisecond or always, for a board's warmth.
    """
    rated_w, window_s, update_s, counter_s, attended = FAMILIES[capability]
    # Nothing ties the board's clock to that of the sampler.
    update_s, counter_s = (each * (1 + random.uniform(-CLOCKS_APART, CLOCKS_APART)) for each in (update_s, counter_s))
    ends_s = BEGINS_S + duration_s
    samples = int((ends_s + 12) / STEP_S)
    begun_s, ended_s = BEGINS_S - random.choice([0.3, 3]), ends_s + random.choice([0.05, 1.5])
    drawn = power_w(random, samples, rated_w, begun_s, ended_s, load)
    drawn += warmer_w
    drawn_j = np.concatenate(([0], np.cumsum(drawn) * STEP_S))

    def until(at_s: Floats) -> Floats:
        return np.interp(at_s / STEP_S, np.arange(samples + 1), drawn_j)

    t_s = moments(random, ends_s + 10)
    if by_counter:
        updates_s = np.arange(random.uniform(0, counter_s), ends_s + 11, counter_s)
        counted_j = np.cumsum((until(updates_s) - until(updates_s - counter_s * attended)) / attended)
        newest = np.clip(np.searchsorted(updates_s, t_s, side="right") - 1, 0, updates_s.size - 1)
        column = {"gpu0_energy_j": tuple(np.round(counted_j[newest], 3))}
    else:
        phase_s = random.uniform(0, update_s)
        shown_s = np.floor((t_s - phase_s) / update_s) * update_s + phase_s
        column = {"gpu0_power_w": tuple(np.round((until(shown_s) - until(shown_s - window_s)) / window_s, 2))}
    (found,) = run_energies(
        Series(t_s=tuple(t_s), columns=column),
        from_s=BEGINS_S,
        to_s=ends_s,
        output_tokens=100,
        tdp_w=None,
        tdp_boundary="gpu_boards",
        sensor=power_sensor(capability),
    )
    truth_j = float(drawn[int(BEGINS_S / STEP_S) : int(ends_s / STEP_S)].sum() * STEP_S)
    return MeteredRun(capability=capability, by_counter=by_counter, duration_s=duration_s, truth_j=truth_j, found=found)
