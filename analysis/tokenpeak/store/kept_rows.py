"""Kept rows: what the frames of a sweep hold of each trial, so that a trial whose files stay is not read again.

FOLDER/trials.parquet  runs.parquet  series.parquet  configs.parquet  idle_power.json
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from tokenpeak.store.columns import Row
from tokenpeak.store.rows import IdlePowers, TrialRows

FRAMES = ("trials", "runs", "series", "configs")
IDLE_POWER = "idle_power.json"


class KeptRows:
    """The rows of a sweep's trials in `read_from`, of those alone whose files are as they were: `same`.

    Who gives it answers for it that code, spec, verdicts and parameters are those by which the rows were made. Rows
    that cannot be read are none. `write_to`, if any, gets the rows of all trials for the next time.
    """

    def __init__(self, read_from: Path, write_to: Path | None, same: Collection[str]) -> None:
        self._write_to = write_to
        self._rows: dict[str, TrialRows] = {}
        if same:
            try:
                self._rows = _read(read_from, frozenset(same))
            except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
                return

    def of(self, trial_id: str) -> TrialRows | None:
        """The trial's rows; None where it must be read."""
        return self._rows.get(trial_id)

    def keep(self, frames: Mapping[str, pl.DataFrame], idle_powers: Mapping[str, IdlePowers]) -> None:
        """Write the frames of `FRAMES`, and what each trial says of idle power."""
        if self._write_to is None:
            return
        self._write_to.mkdir(parents=True, exist_ok=True)
        for name in FRAMES:
            frames[name].write_parquet(self._write_to / f"{name}.parquet", compression="lz4")
        known = {
            trial_id: [[node, boundary, power_w] for (node, boundary), power_w in found.items()]
            for trial_id, found in idle_powers.items()
        }
        (self._write_to / IDLE_POWER).write_text(json.dumps(known))


def _read(folder: Path, same: frozenset[str]) -> dict[str, TrialRows]:
    """The rows of these trials; of one that is not whole, none."""
    frames = {name: pl.read_parquet(folder / f"{name}.parquet", memory_map=False) for name in FRAMES}
    idle = json.loads((folder / IDLE_POWER).read_text())
    configs = {(row["hardware"], row["config_id"]): row for row in frames["configs"].iter_rows(named=True)}
    series = frames["series"].partition_by("trial_id", as_dict=True) if frames["series"].height else {}
    runs: dict[str, list[Row]] = {}
    for row in frames["runs"].iter_rows(named=True):
        runs.setdefault(row["trial_id"], []).append(row)
    found = {}
    for trial in frames["trials"].iter_rows(named=True):
        trial_id = trial["trial_id"]
        if trial_id not in same or trial_id not in idle:
            continue
        own = runs.get(trial_id, [])
        for row in own:
            row["choices"] = trial["choices"]
        found[trial_id] = TrialRows(
            trial=trial,
            runs=own,
            series=series.get((trial_id,)),
            config=configs.get((trial["hardware"], trial["config_id"])),
            idle_powers={(node, boundary): power_w for node, boundary, power_w in idle[trial_id]},
        )
    return found
