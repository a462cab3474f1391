"""The copy of an archive that may leave: each field by its rule, texts without names and sensitive patterns.

The site is made from this copy, so that no page can show what the copy does not hold.
"""

import re
import shutil
from contextlib import suppress
from pathlib import Path

import polars as pl
import yaml
import zstandard

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.paths import shown
from tokenpeak.records import REQUEST_COLUMNS, Record, SweepRecord, TrialRecord
from tokenpeak.report.site.cleaner import Cleaner, Findings
from tokenpeak.report.site.known_words import known_words, node_labels
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.store.request_files import unreadable

CLAIMS = "claims.yml"
LOG_SUFFIX = ".engine.log.zst"
TRIAL_FILE = re.compile(r"\d{4,}-[0-9a-f]{8,}\.json")
UNREADABLE = "{}\n"
"""What a trial's file that cannot be read becomes: pages still name it, and nothing of it leaves."""
PARQUET_NOTES = {"ARROW:schema"}
"""What Parquet itself keeps beside its columns."""


def cleaned_copy(source: Path, target: Path, *, node_names: bool, texts: bool = False) -> Findings:
    """Copy the archive at `source` to `target`, cleaned; what was found. With `node_names` only secrets go.

    Engine logs, and texts that anybody may have written, stay at home, but with `texts` or `node_names`. Files that are
    no part of the raw format are left out, as is the content of those that cannot be read.
    """
    archive = Archive(source)
    record = archive.read_sweep()
    cleaner = cleaner_of(record, node_names=node_names, texts=texts)
    (target / "trials").mkdir(parents=True, exist_ok=True)
    cleaner.where = "sweep.json"
    _write(target / "sweep.json", cleaner.record(record))
    copied = {"sweep.json"}
    # Of the quality the verdicts; what launches answered stays, as it may hold answers to tasks of one's own.
    for name, read in (("end.json", archive.read_end), ("quality.json", archive.read_quality)):
        with suppress(ArchiveError):
            if (found := read()) is not None:
                cleaner.where = name
                _write(target / name, cleaner.record(found))
                copied.add(name)
    if (source / CLAIMS).is_file() and _copy_claims(source / CLAIMS, target / CLAIMS, cleaner):
        copied.add(CLAIMS)
    archive.malformed.clear()
    for path in archive.trial_paths():
        if (trial := archive.readable_trial(path)) is not None:
            copied.update(f"trials/{name}" for name in _copy_trial(archive, trial, Archive(target), cleaner))
    # Reading them names those that cannot be read beside the trials'.
    for apply in archive.applies():
        name = cleaner.word(apply.apply_id)
        cleaner.where = f"applies/{name}.json"
        (target / "applies").mkdir(exist_ok=True)
        _write(target / "applies" / f"{name}.json", cleaner.record(apply))
        copied.add(f"applies/{apply.apply_id}.json")
    for malformed in archive.malformed:
        cleaner.findings.skipped.append(str(malformed))
        if TRIAL_FILE.fullmatch(malformed.path.name):
            (target / "trials" / malformed.path.name).write_text(UNREADABLE)
    files = sorted(path.relative_to(source).as_posix() for path in source.rglob("[!.]*") if path.is_file())
    cleaner.findings.left_out = [name for name in files if name not in copied and not name.endswith(LOG_SUFFIX)]
    return cleaner.findings


def _files_of(archive: Archive, trial_id: str) -> tuple[Path, ...]:
    """Where a trial's record, its requests and, last, its log are."""
    return archive.trial_path(trial_id), archive.requests_path(trial_id), archive.log_path(trial_id)


def _copy_trial(archive: Archive, trial: TrialRecord, copy: Archive, cleaner: Cleaner) -> list[str]:
    """Copy a trial's files, cleaned; the names of the raw ones, without those that cannot be read."""
    name = cleaner.word(trial.trial_id)
    record, requests, log = _files_of(archive, trial.trial_id)
    target, requests_copy, log_copy = _files_of(copy, name)
    cleaner.where = f"trials/{target.name}"
    _write(target, cleaner.record(trial))
    copied = [record.name]
    if requests.is_file():
        cleaner.where = f"trials/{requests_copy.name}"
        if _copy_requests(requests, requests_copy, cleaner):
            copied.append(requests.name)
    if log.is_file() and not cleaner.texts:
        cleaner.findings.add("text", f"trials/{log_copy.name}")
    elif log.is_file():
        cleaner.where = f"trials/{log_copy.name}"
        if _copy_log(archive, trial.trial_id, log_copy, cleaner):
            copied.append(log.name)
    return copied


def cleaner_of(record: SweepRecord, *, node_names: bool, texts: bool = False) -> Cleaner:
    """Cleaner of this sweep's files."""
    spec = parse_spec(record.spec, Path("sweep.json"))
    return Cleaner(known_words(record, spec), node_labels(record), secrets_only=node_names, texts=texts)


def is_published(record: SweepRecord) -> bool:
    """The archive's figures, names of nodes included, are from a publication."""
    return record.imported is not None and record.imported.title is not None


def _write(target: Path, record: Record) -> None:
    target.write_bytes(record.model_dump_json().encode() + b"\n")


def _copy_claims(source: Path, target: Path, cleaner: Cleaner) -> bool:
    """Claims pick runs by their node, so that labels stand there too."""
    cleaner.where = CLAIMS
    try:
        value = bounded.read_yaml(source)
    except ArchiveError as error:
        cleaner.findings.skipped.append(str(error))
        return False
    target.write_text(yaml.safe_dump(cleaner.plain(value), allow_unicode=True, sort_keys=False))
    return True


def _copy_requests(source: Path, target: Path, cleaner: Cleaner) -> bool:
    """The columns of the raw format, their few words cleaned; the same bytes where nothing had to be."""
    if reason := unreadable(source):
        cleaner.findings.skipped.append(f"{source}: {reason}")
        return False
    try:
        notes = pl.read_parquet_metadata(source)
        schema = pl.read_parquet_schema(source)
        words = [name for name, kind in schema.items() if kind == pl.String and name in REQUEST_COLUMNS]
        said = pl.read_parquet(source, columns=words) if words else pl.DataFrame()
        changes = {
            name: {word: cleaner.text(word) for word in said[name].unique().drop_nulls().to_list()} for name in words
        }
        changed = any(word != cleaned for column in changes.values() for word, cleaned in column.items())
        if not changed and schema.keys() <= REQUEST_COLUMNS.keys() and notes.keys() <= PARQUET_NOTES:
            shutil.copyfile(source, target)
            return True
        frame = pl.read_parquet(source, columns=[name for name in schema if name in REQUEST_COLUMNS])
        frame.with_columns(pl.col(name).replace(column) for name, column in changes.items()).write_parquet(target)
    except (OSError, pl.exceptions.PolarsError) as error:
        cleaner.findings.skipped.append(f"{source}: cannot be read ({shown(str(error), 200)})")
        return False
    return True


def _copy_log(archive: Archive, trial_id: str, target: Path, cleaner: Cleaner) -> bool:
    try:
        text = archive.read_log(trial_id) or ""
    except ArchiveError as error:
        cleaner.findings.skipped.append(str(error))
        return False
    target.write_bytes(zstandard.ZstdCompressor().compress(cleaner.log(text).encode()))
    return True
