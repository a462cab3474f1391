"""Archives as Polars frames: the one path from raw files to everything that is computed or shown.

Besides the columns of tables.py, `configs` and `trials` and `runs` have a column `axis_NAME` for each axis of their
sweeps, holding the alternative's name. An analyst gets each axis as a value of its own type, and each request's
latencies, too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import polars as pl

from tokenpeak.errors import ArchiveError, SpecError
from tokenpeak.metrics import BY_NAME
from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.ranking.rank import effects_of, ranks
from tokenpeak.records import Config, ModelName, SweepRecord
from tokenpeak.results.power_sensor import UNKNOWN, boards_sensor
from tokenpeak.results.request_metrics import REQUEST_METRICS
from tokenpeak.spec.parameters import Parameters
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.store.archive import Archive, Malformed, find_archives, parse_record
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

VALUE = "value_"
"""Prefix of an axis's name in the column of its values; `axis_` stands before that of the words for them."""
VALUE_MEANING = "The value of axis {}, a number where all are; the engine's default where it is known and none was set"
LATENCIES = {
    name: f"{BY_NAME[name].title}: {BY_NAME[name].formula}; null for a failed request"
    for name in REQUEST_METRICS
    if BY_NAME[name].unit == "s"
}
"""Meaning of each column that `requests` gets here."""
_FLAGS_OF_PLAN = {
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "block_size": "block_size",
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
}
_FLAGS_OF_DEPLOYMENT = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enforce_eager": "eager",
}
Key = tuple[str, str, str]
"""sweep_id, hardware, config_id."""


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
    """Give each config of which launches may be ranked its rank on its hardware and the objective's mean.

    Configs of one class cannot differ: they have the rank and the mean of all their launches.
    """
    launches: dict[str, dict[str, list[Row]]] = {}
    for trial in trials:
        if trial["objective"] is not None and not trial["holdout"]:
            own = launches.setdefault(str(trial["hardware"]), {})
            own.setdefault(str(trial["config_class"] or trial["config_id"]), []).append(trial)
    for hardware, made in launches.items():
        values = {name: [cast("float", trial["objective"]) for trial in own] for name, own in made.items()}
        nodes = {name: [str(trial["node"]) for trial in own] for name, own in made.items()}
        higher = objective_direction(spec) != "lower"
        for one in ranks(values, effects=effects_of(values, nodes), higher_is_better=higher):
            for config_id in {str(trial["config_id"]) for trial in made[one.config]}:
                configs[hardware, config_id].update(rank=one.rank, objective_mean=one.mean)
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


def for_analysis(frames: Frames) -> Frames:
    """The frames with `value_AXIS` in configs, trials and runs, and the latencies of each request."""
    axes = axes_of(frames)
    records = {
        sweep_id: parse_record(record.encode(), SweepRecord, sweep_id)
        for sweep_id, record in frames.records.select("sweep_id", "record").iter_rows()
    }
    rows = list(frames.configs.iter_rows(named=True))
    keys = ("sweep_id", "hardware", "config_id")
    values: dict[Key, dict[str, object]] = {
        (row["sweep_id"], row["hardware"], row["config_id"]): _values(row, axes, records[row["sweep_id"]])
        for row in rows
    }
    columns = {axis: _typed([value[axis] for value in values.values()]) for axis in axes}
    typed = pl.DataFrame(
        {
            **{name: pl.Series([key[place] for key in values], dtype=pl.String) for place, name in enumerate(keys)},
            **{f"{VALUE}{axis}": column for axis, column in columns.items()},
        }
    )
    changed = {
        name: getattr(frames, name).join(typed, on=keys, how="left", maintain_order="left")
        for name in ("configs", "trials", "runs")
    }
    return replace(frames, **changed, requests=with_latencies(frames.requests, frames.runs))


def axes_of(frames: Frames) -> list[str]:
    """The axes of all sweeps, in the order of their columns."""
    return sorted({axis for spec in frames.specs.values() for axis in spec.axes})


def _values(row: Mapping[str, Any], axes: Iterable[str], record: SweepRecord) -> dict[str, object]:
    """The value of each axis for a config: the flag of its name, else the alternative, else the engine's default."""
    flags, choices = json.loads(row["flags"]), json.loads(row["choices"])
    values = {axis: flags.get(axis, choices.get(axis)) for axis in axes}
    if None not in values.values() or record.imported is not None:
        return values
    known = _defaults(row, flags, record)
    return {axis: known.get(axis) if value is None else value for axis, value in values.items()}


def _defaults(row: Mapping[str, Any], flags: Mapping[str, Any], record: SweepRecord) -> dict[str, object]:
    """The engine's defaults of flags that the config leaves to it, on that hardware; empty where that is not known."""
    node = next((each for each in record.nodes if record.hardware_of(each) == row["hardware"]), None)
    if node is None or record.spec.get("endpoint") is not None:
        return {}
    config = Config(
        config_id=row["config_id"],
        name=row["config_name"],
        model=ModelName(name=row["model_name"], served_name=row["served_name"] or row["model_name"]),
        flags=dict(flags),
        env=json.loads(row["env"]),
        engine_version=row["engine_version"],
    )
    plan = plan_memory(config, node, model_facts(row["model_name"]), row["engine_version"] or node.engine_version)
    if plan is None:
        return {}
    return {flag: getattr(plan, name) for flag, name in _FLAGS_OF_PLAN.items()} | {
        flag: getattr(plan.deployment, name) for flag, name in _FLAGS_OF_DEPLOYMENT.items()
    }


def _typed(values: list[object]) -> pl.Series:
    """The values as whole numbers, numbers or booleans where all of them are; else as text."""
    if all(value is None or isinstance(value, bool) for value in values):
        return pl.Series(values, dtype=pl.Boolean)
    words = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    text = pl.Series(words, dtype=pl.String)
    # The name of an alternative may be a number, too.
    numbers = (text.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((each for each in numbers if each.null_count() == text.null_count()), text)


def with_latencies(requests: pl.LazyFrame, runs: pl.DataFrame) -> pl.LazyFrame:
    """The requests with LATENCIES."""
    keys = ["sweep_id", "trial_id", "run_index"]
    opened = runs.select(*keys, is_open=pl.col("level_kind") == "open").lazy()
    began = pl.when("is_open").then("due_s").otherwise("sent_s")
    ended = pl.col("error").is_null()
    return (
        requests.join(opened, on=keys, how="left", maintain_order="left")
        .with_columns(pl.when(ended).then(REQUEST_METRICS[name](began)).alias(name) for name in LATENCIES)
        .drop("is_open")
    )
