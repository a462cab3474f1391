"""Archive on disk: raw files, each written atomically, and read one by one.

A file is written beside its place, fsynced, renamed, and its folder fsynced. A trial's JSON is written after its
requests and its log, so that a trial that can be read is complete. What does not end in `.json` at that moment
(`.NAME.PID.part`) is a write that never finished and is not read.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import zstandard
from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError, InputError, suggestion
from tokenpeak.files import replacing, sync
from tokenpeak.node.machine.words import wrong_word
from tokenpeak.paths import inside, shown
from tokenpeak.quality.answers import read_passes, with_verdict
from tokenpeak.records import FORMAT_VERSION, ApplyRecord, EndRecord, Record, SweepRecord, TrialRecord
from tokenpeak.records.quality import QualityPasses, SweepQuality
from tokenpeak.store.pack import SUFFIX, unpacked

TRAFFIC_FILE = "traffic.json"
"""In an archive: what production was asked before the sweep, which its workloads from production replay."""

RecordT = TypeVar("RecordT", SweepRecord, TrialRecord, EndRecord, SweepQuality, ApplyRecord)


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """A raw file that could not be read, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Archive:
    """The folder of raw files of one sweep. Reading changes nothing; `malformed` names the files that were skipped."""

    def __init__(self, path: Path, require_claim: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.malformed: list[Malformed] = []
        self._require_claim = require_claim
        """Called when a file is written and not yet in its place; it raises where that is no longer allowed."""

    def __repr__(self) -> str:
        return f"Archive({str(self.path)!r})"

    def write_sweep(self, record: SweepRecord) -> None:
        """Write sweep.json, once: an archive that already has one is refused."""
        target = self.path / "sweep.json"
        if target.exists():
            raise ArchiveError(f"{target} exists already. Resume that sweep, or let a new one take another id.")
        _make_folder(self.path / "trials")
        self._write_record(target, record)

    def write_trial(
        self,
        record: TrialRecord,
        requests_parquet: Path | None = None,
        log_text: str = "",
        answers: Path | None = None,
    ) -> None:
        """Write a trial with its requests, its engine's log and answers; once this returns, no power loss undoes it."""
        target = self.trial_path(record.trial_id)
        if target.exists():
            raise ArchiveError(f"{target} exists already; trial ids are given once.")
        _make_folder(target.parent)
        if requests_parquet is not None:
            with self._replacing(self.requests_path(record.trial_id)) as part:
                shutil.copyfile(requests_parquet, part)
        if answers is not None:
            with self._replacing(self.answers_path(record.trial_id)) as part:
                shutil.copyfile(answers, part)
        if log_text:
            packed = zstandard.ZstdCompressor().compress(_log_bytes(log_text))
            self._write(self.log_path(record.trial_id), packed)
        self._write_record(target, record)

    def write_quality(self, record: SweepQuality) -> None:
        """Write quality.json, replacing the one of fewer trials."""
        self._write_record(self.path / "quality.json", record)

    def write_end(self, record: EndRecord) -> None:
        """Write end.json, replacing the one of an earlier interruption."""
        self._write_record(self.path / "end.json", record)

    def write_apply(self, record: ApplyRecord) -> None:
        """Write what came of an apply on a node."""
        _make_folder(self.path / "applies")
        self._write_record(self.apply_path(record.apply_id), record)

    def apply_path(self, apply_id: str) -> Path:
        """Where an apply's JSON is."""
        return inside(self.path / "applies", f"{apply_id}.json")

    def applies(self) -> list[ApplyRecord]:
        """The applies in the order in which they began; one that cannot be read is named in `malformed`."""
        records = []
        for path in sorted((self.path / "applies").glob("[!.]*.json")):
            try:
                records.append(parse_record(bounded.read_bytes(path), ApplyRecord, path))
            except ArchiveError as error:
                self.malformed.append(Malformed(path=path, reason=str(error).removeprefix(f"{path}: ")))
        return records

    def trial_path(self, trial_id: str) -> Path:
        """Where the trial's JSON is."""
        return inside(self.path / "trials", f"{trial_id}.json")

    def requests_path(self, trial_id: str) -> Path:
        """Where the trial's requests are; absent when it sent none."""
        return inside(self.path / "trials", f"{trial_id}.requests.parquet")

    def log_path(self, trial_id: str) -> Path:
        """Where the trial's engine log is; absent when the engine said nothing."""
        return inside(self.path / "trials", f"{trial_id}.engine.log.zst")

    def answers_path(self, trial_id: str) -> Path:
        """Where what the trial's launch answered is; absent when that was not measured."""
        return inside(self.path / "trials", f"{trial_id}.quality.json.zst")

    def read_answers(self, trial_id: str) -> QualityPasses | None:
        """Answers of the trial's launch; None when that was not measured."""
        path = self.answers_path(trial_id)
        return read_passes(path) if path.exists() else None

    def read_quality(self) -> SweepQuality | None:
        """The verdicts on the answers of the sweep's configs; None where none were measured."""
        path = self.path / "quality.json"
        return parse_record(bounded.read_bytes(path), SweepQuality, path) if path.is_file() else None

    def read_log(self, trial_id: str) -> str | None:
        """The engine's log of the trial; None when there is none."""
        path = self.log_path(trial_id)
        if not path.exists():
            return None
        return bounded.unpacked(bounded.read_bytes(path), path).decode("utf-8", "replace")

    def read_sweep(self) -> SweepRecord:
        """The sweep's record; an archive without it cannot be read."""
        path = self.path / "sweep.json"
        if not path.is_file():
            raise ArchiveError(f"{self.path} is no archive: it has no sweep.json.")
        return parse_record(bounded.read_bytes(path), SweepRecord, path)

    def read_end(self) -> EndRecord | None:
        """How the sweep ended; None while it runs, and after a controller that died."""
        path = self.path / "end.json"
        return parse_record(bounded.read_bytes(path), EndRecord, path) if path.is_file() else None

    def trials(self) -> Iterator[TrialRecord]:
        """The trials in the order of their ids; a file that cannot be read is named in `malformed` and skipped."""
        self.malformed.clear()
        for path in self.trial_paths():
            if (record := self.readable_trial(path)) is not None:
                yield record

    def trial_paths(self) -> list[Path]:
        """The trials' files in the order of their ids, whether they can be read or not."""
        return sorted(path for path in (self.path / "trials").glob("*.json") if not path.name.startswith("."))

    def readable_trial(self, path: Path) -> TrialRecord | None:
        """The trial in a file; None for one that cannot be read, which is then named in `malformed`."""
        try:
            record = parse_record(bounded.read_bytes(path), TrialRecord, path)
        except ArchiveError as error:
            self.malformed.append(Malformed(path=path, reason=str(error).removeprefix(f"{path}: ")))
            return None
        if record.trial_id != path.stem:
            reason = f"holds trial {shown(record.trial_id)}; a trial's file is named after its id"
            self.malformed.append(Malformed(path=path, reason=reason))
            return None
        return record

    def judged_trials(self) -> Iterator[TrialRecord]:
        """The same with the verdicts on their answers: runs of a config that did not pass are not to be ranked."""
        quality = self.read_quality()
        return (with_verdict(trial, quality) for trial in self.trials())

    @contextmanager
    def _replacing(self, target: Path) -> Iterator[Path]:
        """A path to write to, whose content is then at `target`: all of it, or nothing."""
        try:
            with replacing(target) as part:
                yield part
                self._require_claim()
        except OSError as error:
            raise ArchiveError(
                f"Could not write {target}: {error.strerror or error}. Make room or give access."
            ) from error

    def _write(self, target: Path, data: bytes) -> None:
        with self._replacing(target) as part:
            part.write_bytes(data)

    def _write_record(self, target: Path, record: Record) -> None:
        self._write(target, record.model_dump_json().encode() + b"\n")


def find_archives(paths: list[Path]) -> list[Archive]:
    """The archives at or directly below each path, in the order of their names; a path without one is an error.

    A packed one (.tar.zst) counts as the folder that it holds; beside the folder that it was packed from, not at all.
    """
    archives, broken = find_readable(paths)
    for error in broken.values():
        raise error
    return archives


def find_readable(paths: list[Path]) -> tuple[list[Archive], dict[Path, ArchiveError]]:
    """The same archives, and beside them the error of each that cannot be opened."""
    archives: list[Archive] = []
    broken: dict[Path, ArchiveError] = {}
    for place in (place for given in paths for place in _places(given)):
        try:
            _require_plain_name(place)
            archives.append(open_archive(unpacked(place) if place.is_file() else place))
        except ArchiveError as error:
            broken[place] = error
    return archives, broken


def _places(given: Path) -> list[Path]:
    """The folders and packed files at or directly below a path; ArchiveError where there is none."""
    if (given / "sweep.json").is_file() or (given.name.endswith(SUFFIX) and given.is_file()):
        return [given]
    _require_plain_name(given)
    below = sorted(sweep.parent for sweep in given.glob("*/sweep.json"))
    folders = {folder.name for folder in below}
    below += [pack for pack in sorted(given.glob(f"*{SUFFIX}")) if pack.name.removesuffix(SUFFIX) not in folders]
    if not below:
        raise ArchiveError(f"No archive at {given}: neither it nor a folder in it has a sweep.json.")
    return below


def archive_below(folder: Path, sweep_id: str) -> Archive:
    """The archive of that sweep in a folder of archives; InputError names the nearest where there is none."""
    path = inside(folder, sweep_id, may_link=True)
    if not (path / "sweep.json").is_file():
        known = sorted(each.parent.name for each in folder.glob("*/sweep.json"))
        raise InputError(f"No sweep {sweep_id!r} in {folder}. {suggestion(sweep_id, known)}")
    return open_archive(path)


MOST_FILES = 200_000
"""Of an archive: its largest sweeps have some ten thousand trials of at most four files."""
LARGEST_PARQUET_BYTES = 2 * 1024**3
"""A trial's requests; a million take some hundred megabytes."""


def open_archive(folder: Path) -> Archive:
    """The archive at `folder`, of plain files: a link may lead to any other file, and a pipe has no end.

    Whatever reads an archive that may be somebody else's opens it by this. ArchiveError for one that is no such folder.
    """
    _require_plain_name(folder)
    count = 0
    for place in (folder, folder / "trials", folder / "applies"):
        if place.is_symlink() and place != folder:
            raise ArchiveError(f"{place} is a link. Put the folder itself there.")
        if not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                count += 1
                _require_plain_name(place / entry.name)
                facts = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
                    kind = "a link" if entry.is_symlink() else "no plain file"
                    raise ArchiveError(
                        f"{place}: {shown(entry.name)} is {kind}. Put the file itself there, or remove it."
                    )
                if count > MOST_FILES or facts.st_size > LARGEST_PARQUET_BYTES:
                    raise ArchiveError(
                        f"{place}: more than {MOST_FILES:,} files, or {shown(entry.name)} has more than "
                        f"{LARGEST_PARQUET_BYTES:,} bytes, which no archive has."
                    )
    return Archive(folder)


def _require_plain_name(path: Path) -> None:
    """ArchiveError where a name has a line end or another hidden character: messages name files and folders."""
    if wrong := wrong_word(path.name):
        raise ArchiveError(f"{path.parent}: the name {shown(path.name)} {wrong}. Rename it, or remove it.")


def _log_bytes(text: str) -> bytes:
    """An engine's log as it is kept: of one that is too long for its readers, the beginning and the end."""
    whole, most = text.encode("utf-8", "replace"), bounded.LARGEST_LOG_BYTES
    if len(whole) <= most:
        return whole
    half = most // 2 - 100
    return whole[:half] + b"\n[%d bytes are left out]\n" % (len(whole) - 2 * half) + whole[-half:]


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda raw: {**raw, "format_version": 2},
    2: lambda raw: _renamed(raw, "other_requests", "holdout") | {"format_version": 3},
}
"""Upgrades of a file of each older version to the next."""

GONE = ("node_screening",)
"""Fields of older files, of any version, that nothing reads any more."""


def _renamed(raw: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {(after if key == before else key): value for key, value in raw.items()}


def upgraded(raw: dict[str, Any]) -> dict[str, Any]:
    """A file's content as this version writes it."""
    version = raw.get("format_version", 1)
    while isinstance(version, int) and version in UPGRADES:
        raw = UPGRADES[version](raw)
        version = raw["format_version"]
    return {key: value for key, value in raw.items() if key not in GONE}


def parse_record(text: bytes, kind: type[RecordT], path: Path | str) -> RecordT:
    """The record in a file's bytes, of whichever version; ArchiveError names `path` and what is wrong with it."""
    # Parsed twice: the models' own parser has no bounds, and takes a number beyond what a frame holds.
    raw = bounded.parse_json(text, path)
    if isinstance(raw, dict):
        _refuse_newer(path, raw.get("format_version"))
        if raw.get("format_version", 1) != FORMAT_VERSION or not raw.keys().isdisjoint(GONE):
            text = json.dumps(upgraded(raw)).encode()
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(shown(part).strip("'") for part in first["loc"]) or "file"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ArchiveError(f"{path}: {where}: {first['msg'][:500]}{more}.") from error


def _refuse_newer(path: Path | str, version: object) -> None:
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ArchiveError(
            f"{path}: format version {version}, and this TokenPeak reads up to {FORMAT_VERSION}. "
            "Install the TokenPeak that wrote it, or a newer one."
        )


def _make_folder(folder: Path) -> None:
    """Create `folder` and those above it, each made to last by an fsync of its parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)
