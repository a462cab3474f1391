"""Opening archives for a report: a folder, a packed archive, several, or a sweep in Postgres; each becomes a view.

Keywords are those of `tokenpeak.spec.parameters`: what is asked otherwise than the sweep did. A folder `results` that
has no archive yet stands for a shipped one, and an archive that cannot be read is left out of several: each is printed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, InputError, suggestion
from tokenpeak.ranking.intervals import assurance
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.report.view import SweepView, config_label, short_names
from tokenpeak.spec.parameters import Parameters, parameters_of
from tokenpeak.spec.slo import Slo
from tokenpeak.store.archive import Archive, find_readable
from tokenpeak.store.frames import Frames, for_analysis, open_frames
from tokenpeak.terminal import echo

POSTGRES = "postgres:"
"""What stands before the id of a sweep that is to be read from Postgres."""
Place = str | Path
"""A folder, a packed archive (.tar.zst), the name of a shipped one, or `postgres:SWEEP_ID`."""
EXAMPLE = paths.LANDSCAPES / "requests-sim.tar.zst"
"""What `results` stands for until it has an archive: every page of it has figures."""


def open_archive(archive: Place | Sequence[Place], **asked: Any) -> SweepView:
    """The sweep at `archive`: frames as attributes, read once for as long as its files stay as they are.

    Of several, and of a folder that holds several, the newest. Keywords are the parameters of a notebook; InputError
    for a value that the sweep does not have.

    >>> waits = open_archive(EXAMPLE, objective="ttft_s_p95")
    >>> waits.metric_title
    'Time to first token p95'
    """
    parameters = parameters_of(asked)
    places = _places(archive)
    if len(places) == 1 and (Path(places[0]) / "sweep.json").is_file():
        return _of_folder(Path(places[0]).resolve(), parameters)
    return next(_viewable(sorted(_sweeps(places), key=_start, reverse=True), parameters))


def open_archives(archives: Place | Sequence[Place], **asked: Any) -> list[SweepView]:
    """Every sweep at `archives`, oldest first, each as `open_archive` gives it.

    >>> pl.concat(each.runs.select("sweep_id", "label", "output_tok_per_s") for each in open_archives([EXAMPLE])).height
    48
    """
    return list(_viewable(sorted(_sweeps(_places(archives)), key=_start), parameters_of(asked)))


@dataclass(frozen=True)
class _Found:
    """A sweep at a place, its frames not read yet where it is a folder."""

    record: SweepRecord
    view: Callable[[Parameters], SweepView]


def _start(found: _Found) -> datetime:
    return found.record.started_at


def _places(archives: Place | Sequence[Place]) -> list[Place]:
    """The given places as a list that holds something."""
    places = [archives] if isinstance(archives, str | Path) else list(archives)
    if not places:
        raise InputError("archive names nothing. Give a folder, a packed archive, or postgres:SWEEP_ID.")
    return [paths.shipped(place) for place in places]


def _viewable(sweeps: Sequence[_Found], parameters: Parameters) -> Iterator[SweepView]:
    """The view of each sweep that can be read; the others are printed. ArchiveError where none can."""
    errors = []
    for sweep in sweeps:
        try:
            yield sweep.view(parameters)
        except ArchiveError as error:
            errors.append(error)
            echo(f"Left out: {error}")
    if len(errors) == len(sweeps):
        raise errors[0]


def _sweeps(places: Sequence[Place]) -> list[_Found]:
    """Each sweep at the places whose record can be read; the others are printed. ArchiveError where none can."""
    found: list[_Found] = []
    errors: list[ArchiveError] = []
    for place in places:
        if str(place).startswith(POSTGRES):
            found.append(_in_postgres(str(place).removeprefix(POSTGRES)))
            continue
        readable, broken = _at(Path(place))
        errors += broken.values()
        for archive in readable:
            try:
                found.append(_Found(archive.read_sweep(), partial(_of_folder, archive.path)))
            except ArchiveError as error:
                errors.append(error)
    if errors and not found:
        raise errors[0]
    for each in errors:
        echo(f"Left out: {each}")
    return found


def _at(place: Path) -> tuple[list[Archive], dict[Path, ArchiveError]]:
    """The archives at a place, and the errors of those that cannot be opened; a shipped one where results has none."""
    try:
        return find_readable([place.resolve()])
    except ArchiveError:
        if place.name != paths.RESULTS.name:
            raise
        echo(f"{place} has no archive yet. This is a shipped, simulated one: {EXAMPLE.name}.")
        return find_readable([EXAMPLE])


def _in_postgres(sweep_id: str) -> _Found:
    """The sweep in the Postgres that is set up here."""
    from tokenpeak.store.database import open_database

    with open_database() as database:
        record, end, frames = database.read(sweep_id)

    def view(parameters: Parameters) -> SweepView:
        if changed := [name for name in parameters.given() if name != "hardware"]:
            raise InputError(
                f"{POSTGRES}{sweep_id}: Postgres holds figures as they were loaded, so {', '.join(changed)} cannot be "
                "changed. Give the archive itself."
            )
        return _viewed(None, record, end, frames, parameters)

    return _Found(record, view)


_views: dict[tuple[Path, int, int, Parameters], SweepView] = {}
"""The sweeps opened last, by their folder, how many files they are of, the newest one's time, and what was asked."""
MOST_VIEWS = 3
"""As many sweeps are kept in memory."""


def _of_folder(folder: Path, parameters: Parameters) -> SweepView:
    files = [*map(folder.joinpath, ("sweep.json", "end.json", "quality.json")), *(folder / "trials").glob("*.json")]
    stamps = [file.stat().st_mtime_ns for file in files if file.is_file()]
    key = (folder, len(stamps), max(stamps, default=0), parameters)
    view = _views.pop(key, None) or _opened(folder, parameters)
    _views[key] = view
    while len(_views) > MOST_VIEWS:
        del _views[next(iter(_views))]
    return view


def _opened(folder: Path, parameters: Parameters) -> SweepView:
    archive = Archive(folder)
    frames = open_frames([folder], parameters)
    found = _viewed(folder, archive.read_sweep(), archive.read_end(), frames, parameters)
    return replace(
        found, malformed=tuple(f"{file.path.relative_to(folder)}: {file.reason}" for file in frames.malformed)
    )


def _viewed(
    folder: Path | None, record: SweepRecord, end: EndRecord | None, frames: Frames, parameters: Parameters
) -> SweepView:
    """The view, with labels, confidences and, of a sweep on several kinds of hardware, the one asked for."""
    spec = frames.specs[record.sweep_id]
    frames = for_analysis(frames)
    if parameters.hardware:
        record, frames = _on(parameters.hardware, record, frames)
    axes = [f"axis_{axis}" for axis in spec.axes if f"axis_{axis}" in frames.trials.columns]
    short = {f"axis_{axis}": short_names([choice.name for choice in options]) for axis, options in spec.axes.items()}
    words = [
        config_label({axis: short[axis].get(row[axis], row[axis]) for axis in axes}, row["config_name"])
        for row in frames.trials.select("config_name", *axes).iter_rows(named=True)
    ]
    trials = frames.trials.with_columns(pl.Series("label", words, dtype=pl.String))
    runs = frames.runs.join(trials.select("trial_id", "label"), on="trial_id", how="left")
    runs = runs.with_columns(slo_confidence=_slo_confidences(runs))
    return SweepView(
        origin=folder,
        record=record,
        end=end,
        spec=spec,
        frames=replace(frames, trials=trials, runs=runs),
        asked=parameters,
    )


def _on(hardware: str, record: SweepRecord, frames: Frames) -> tuple[SweepRecord, Frames]:
    """The part of a sweep that ran on one kind of hardware; InputError where it has no such."""
    known = {plan.hardware for plan in record.plans} | set(frames.trials["hardware"].to_list())
    if hardware not in known:
        raise InputError(f"hardware is {hardware!r}. {suggestion(hardware, known)}")
    here = pl.col("hardware") == hardware
    trials = frames.trials.filter(here)
    changed = {name: getattr(frames, name).filter(here) for name in ("nodes", "configs", "runs")}
    of_trials = {
        name: getattr(frames, name).lazy().filter(pl.col("trial_id").is_in(trials["trial_id"].to_list()))
        for name in ("series", "requests")
    }
    part = record.model_copy(
        update={
            "plans": tuple(plan for plan in record.plans if plan.hardware == hardware),
            "nodes": tuple(node for node in record.nodes if record.hardware_of(node) == hardware),
        }
    )
    return part, replace(
        frames, trials=trials, **changed, series=of_trials["series"].collect(), requests=of_trials["requests"]
    )


def _slo_confidences(runs: pl.DataFrame) -> pl.Series:
    """The confidence that each run's SLO is met (0..1); null where it was not met, or without counts."""
    columns = ("slo", "slo_met", "within_limits", "requests_sent")
    confidences = [
        assurance(Slo.model_validate_json(slo), json.loads(within), sent) if met else None
        for slo, met, within, sent in runs.select(columns).iter_rows()
    ]
    return pl.Series(confidences, dtype=pl.Float64)
