"""Client output: what the load client of a trial has written, as far as it came."""

import json
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter, ValidationError

from tokenpeak.loadgen.job import QUALITY, JobOutcome, read_outcome
from tokenpeak.node.protocol import parts
from tokenpeak.node.protocol.parts import Series
from tokenpeak.records import RunRecord
from tokenpeak.records.quality import QualityMeasurement

_RUNS = TypeAdapter(tuple[RunRecord, ...])


class ClientOutput:
    """What the load client has written into its folder: not all of it where it was killed, nothing without one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def outcome(self) -> JobOutcome:
        """How the client says that its job ended; nothing special when it did not get to write."""
        try:
            return JobOutcome() if self._folder is None else read_outcome(self._folder)
        except ValidationError:
            return JobOutcome()

    def quality(self) -> QualityMeasurement:
        """That answers were measured, or why they were not."""
        try:
            return QualityMeasurement.model_validate_json(self._path(QUALITY).read_bytes())
        except (OSError, ValidationError):
            return QualityMeasurement(problem="The load client ended before it had measured the answers.")

    def runs(self) -> tuple[RunRecord, ...]:
        """The runs, in order."""
        try:
            runs = _RUNS.validate_json(self._path("runs.json").read_bytes())
        except (OSError, ValidationError):
            return ()
        return tuple(sorted(runs, key=lambda run: run.run_index))

    def metrics(self) -> Series:
        """The engine's own metrics."""
        try:
            return parts.series(json.loads(self._path("metrics.json").read_text()))
        except (OSError, ValueError):
            return Series()

    def measured_windows(self) -> dict[int, tuple[float, float]]:
        """By run: when its first measured request was due and its last token came, seconds after the run's start."""
        try:
            columns = ["run_index", "phase", "due_s", "last_token_s"]
            requests = pl.read_parquet(self._path("requests.parquet"), columns=columns)
        except (pl.exceptions.PolarsError, OSError):
            return {}
        windows = requests.group_by("run_index").agg(
            pl.col("due_s").filter(pl.col("phase") == "measured").min(),
            # The probes of a search count from starts of their own.
            pl.col("last_token_s").filter(pl.col("phase") != "probe").max(),
        )
        return {run_index: (due_s, last_s) for run_index, due_s, last_s in windows.drop_nulls().iter_rows()}

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise FileNotFoundError(name)
        return self._folder / name
