"""Archives as Polars frames: the one path from raw files to everything that is computed or shown.

Besides the columns of tables.py, `configs` and `trials` and `runs` have a column `axis_NAME` for each axis of their
sweeps, holding the alternative's name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tokenpeak.errors import ArchiveError, SpecError
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.ranking.rank import effects_of, ranks
from tokenpeak.records import SweepRecord
from tokenpeak.results.power_sensor import UNKNOWN, boards_sensor
from tokenpeak.spec.parameters import Parameters
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.store.archive import Archive, Malformed, find_archives
from tokenpeak.store.columns import Row, SqlTable
from tokenpeak.store.request_files import RequestFile, parts, scanned, unreadable
from tokenpeak.store.rows import (
    IdlePowers,
    config_row,
    config_rows,
    node_row,
    series_frame,
    sweep_row,
    trial_rows,
    with_idle_power,
)
from tokenpeak.store.tables import CONFIGS, NODES, RECORDS, RUNS, SERIES, SWEEPS, TRIALS


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Every row of one or more archives; `requests` is read from Parquet when it is collected."""

    sweeps: pl.DataFrame
    records: pl.DataFrame
    nodes: pl.DataFrame
    configs: pl.DataFrame
    trials: pl.DataFrame
    runs: pl.DataFrame
    series: pl.DataFrame
    requests: pl.LazyFrame
    specs: Mapping[str, SweepSpec]
    """Each sweep's spec, by sweep_id."""
    malformed: tuple[Malformed, ...] = ()
    """Raw files that could not be read; everything else is in the frames."""
    request_files: tuple[RequestFile, ...] = ()
    """The files that `requests` reads; none of frames from a database."""

    def request_parts(self, sweep_id: str) -> Iterator[pl.DataFrame]:
        """The requests of a sweep, those of some trials at a time: all of a large one would fill the memory."""
        if self.request_files:
            yield from parts([file for file in self.request_files if file[0] == sweep_id])
        else:
            yield self.requests.filter(pl.col("sweep_id") == sweep_id).collect()


def open_frames(paths: Path | Sequence[Path], parameters: Parameters | None = None) -> Frames:
    """The frames of the archives at or directly below `paths`, by their specs as the parameters change them.

    An archive whose sweep.json cannot be read is named in `malformed`; when none can, that is an ArchiveError.
    """
    frames = _read(find_archives([paths] if isinstance(paths, Path) else list(paths)), parameters)
    if not frames.specs:
        raise ArchiveError("No archive could be read:\n  " + "\n  ".join(str(file) for file in frames.malformed))
    return frames


def _read(archives: Iterable[Archive], parameters: Parameters | None) -> Frames:
    rows: dict[str, list[Row]] = {table.name: [] for table in (SWEEPS, RECORDS, NODES, CONFIGS, TRIALS, RUNS)}
    series: list[pl.DataFrame] = []
    requests: list[RequestFile] = []
    specs: dict[str, SweepSpec] = {}
    folders: dict[str, Path] = {}
    malformed: list[Malformed] = []
    for archive in archives:
        try:
            sweep, end, quality = archive.read_sweep(), archive.read_end(), archive.read_quality()
            spec = parse_spec(sweep.spec, archive.path / "sweep.json")
        except (ArchiveError, SpecError) as error:
            malformed.append(Malformed(path=archive.path / "sweep.json", reason=str(error)))
            continue
        _refuse_second(sweep.sweep_id, archive.path, folders)
        spec = parameters.applied(spec) if parameters else spec
        limits = parameters.limits if parameters else None
        specs[sweep.sweep_id] = spec
        planned = config_rows(sweep, quality)
        trials: list[Row] = []
        runs: list[Row] = []
        idles: IdlePowers = {}
        sensors = {node.node: boards_sensor(node.gpus) for node in sweep.nodes}
        archive.malformed.clear()
        for path in archive.trial_paths():
            if (trial := archive.readable_trial(path)) is None:
                continue
            row, run_rows = trial_rows(sweep, spec, quality, limits, sensors.get(trial.node, UNKNOWN), trial)
            trials.append(row)
            runs += run_rows
            idles |= {(trial.node, each.boundary): each.power_w for each in trial.idle_power}
            key = (trial.hardware, trial.config.config_id)
            if key not in planned:
                planned[key] = config_row(
                    sweep.sweep_id, trial.hardware, trial.config, quality, {"status": "unplanned"}
                )
            if trial.series.t_s:
                series.append(series_frame(sweep.sweep_id, trial.trial_id, trial.series))
            if (parquet := archive.requests_path(path.stem)).is_file():
                if reason := unreadable(parquet):
                    malformed.append(Malformed(path=parquet, reason=reason))
                else:
                    requests.append((sweep.sweep_id, path.stem, parquet))
        malformed += archive.malformed
        with_idle_power(runs, idles)
        _rank(planned, trials, spec)
        rows["trials"] += trials
        rows["runs"] += runs
        rows["configs"] += planned.values()
        rows["nodes"] += [node_row(sweep, node) for node in sweep.nodes]
        rows["sweeps"].append(sweep_row(sweep, end, spec, len(trials)))
        rows["records"].append(
            {
                "sweep_id": sweep.sweep_id,
                "record": sweep.model_dump_json(),
                "end_record": end.model_dump_json() if end else None,
            }
        )
    return Frames(
        sweeps=_frame(SWEEPS, rows["sweeps"]),
        records=_frame(RECORDS, rows["records"]),
        nodes=_frame(NODES, rows["nodes"]),
        configs=_with_axes(_frame(CONFIGS, rows["configs"]), specs),
        trials=_with_axes(_frame(TRIALS, rows["trials"]), specs),
        runs=_run_frame(rows["runs"], specs),
        series=pl.concat(series) if series else _frame(SERIES, []),
        requests=scanned(requests),
        specs=specs,
        malformed=tuple(malformed),
        request_files=tuple(requests),
    )


def frames_of_each(paths: Sequence[Path]) -> Iterator[Frames]:
    """The frames of each archive at or directly below `paths`, one after the other: memory holds one sweep at a time.

    Of an archive whose sweep.json cannot be read they have no row, and name it in `malformed`; when none can, that is
    an ArchiveError after all. Two of one sweep are an ArchiveError before any.
    """
    archives = find_archives(list(paths))
    folders: dict[str, Path] = {}
    for archive in archives:
        try:
            sweep_id = archive.read_sweep().sweep_id
        except ArchiveError:
            continue
        _refuse_second(sweep_id, archive.path, folders)
    if not folders:
        open_frames(paths)
    for archive in archives:
        yield _read([archive], None)


def sweep_folders(archives: Sequence[Path]) -> dict[str, Path]:
    """The readable archives at or below these places, by sweep."""
    folders: dict[str, Path] = {}
    for place in archives:
        try:
            for archive in find_archives([place]):
                folders.setdefault(archive.read_sweep().sweep_id, archive.path)
        except ArchiveError:
            continue
    return folders


def frames_of(record: SweepRecord, tables: Mapping[str, pl.DataFrame]) -> Frames:
    """The frames of one sweep from its rows in a database, by table, in which the times of single events are not."""
    specs = {record.sweep_id: parse_spec(record.spec, Path("sweep.json"))}
    choices = tables["trials"].select("trial_id", "choices")
    runs = tables["runs"].join(choices, on="trial_id", how="left", maintain_order="left")
    return Frames(
        sweeps=tables["sweeps"],
        records=tables["records"],
        nodes=tables["nodes"],
        configs=_with_axes(tables["configs"], specs),
        trials=_with_axes(tables["trials"], specs),
        runs=_with_axes(runs, specs).drop("choices"),
        series=tables["series"],
        requests=tables["requests"].lazy().with_columns(event_times_us=pl.lit(None, dtype=pl.List(pl.Int64))),
        specs=specs,
    )


def _refuse_second(sweep_id: str, path: Path, folders: dict[str, Path]) -> None:
    """Note where a sweep is; ArchiveError where another archive holds it too."""
    if sweep_id in folders:
        raise ArchiveError(f"{path} and {folders[sweep_id]} both hold sweep {sweep_id}.")
    folders[sweep_id] = path


def _frame(table: SqlTable, rows: list[Row]) -> pl.DataFrame:
    """Rows as a frame with exactly the table's columns."""
    schema = table.schema()
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=schema)


def _rank(configs: dict[tuple[str, str], Row], trials: Sequence[Row], spec: SweepSpec) -> None:
    """Give each config of which launches may be ranked its rank on its hardware and the objective's mean."""
    launches: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for trial in trials:
        value = trial["objective"]
        if isinstance(value, int | float) and not trial["holdout"]:
            own = launches.setdefault(str(trial["hardware"]), {})
            own.setdefault(str(trial["config_id"]), []).append((str(trial["node"]), value))
    for hardware, made in launches.items():
        values = {config: [value for _, value in own] for config, own in made.items()}
        nodes = {config: [node for node, _ in own] for config, own in made.items()}
        higher = objective_direction(spec) != "lower"
        for one in ranks(values, effects=effects_of(values, nodes), higher_is_better=higher):
            configs[hardware, one.config].update(rank=one.rank, objective_mean=one.mean)
    unproven: dict[tuple[str, str], list[float]] = {}
    for trial in trials:
        value = trial["objective_unproven"]
        if isinstance(value, int | float) and not trial["holdout"]:
            unproven.setdefault((str(trial["hardware"]), str(trial["config_id"])), []).append(value)
    for key, launched in unproven.items():
        (mean,) = (one.mean for one in ranks({"": launched}, higher_is_better=True))
        configs[key]["objective_unproven_mean"] = mean


def _with_axes(frame: pl.DataFrame, specs: Mapping[str, SweepSpec]) -> pl.DataFrame:
    """The frame with a column for each axis of the sweeps, read from `choices`."""
    axes = sorted({axis for spec in specs.values() for axis in spec.axes})
    choices: list[dict[str, str]] = [json.loads(text) for text in frame["choices"]]
    return frame.with_columns(
        pl.Series(f"axis_{axis}", [choice.get(axis) for choice in choices], dtype=pl.String) for axis in axes
    )


def _run_frame(rows: list[Row], specs: Mapping[str, SweepSpec]) -> pl.DataFrame:
    """The runs with their trials' axes."""
    choices = pl.Series("choices", [row["choices"] for row in rows], dtype=pl.String)
    return _with_axes(_frame(RUNS, rows).with_columns(choices), specs).drop("choices")
