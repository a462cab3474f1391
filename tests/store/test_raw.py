"""Archives are written whole or not at all, and read file by file."""

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive, sweep_spec, trial_record
from tokenpeak.errors import ArchiveError
from tokenpeak.records import FORMAT_VERSION
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.store.pack import pack


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A small archive."""
    return make_archive(tmp_path / "small", seconds=5)


def test_log_and_requests_lie_beside_the_trial(tmp_path: Path) -> None:
    """A trial's requests and its whole log are read again from its archive."""
    trial, frame = trial_record(sweep_spec())
    assert frame is not None
    frame.write_parquet(tmp_path / "scratch.parquet")
    archive = Archive(tmp_path / "archive")
    archive.write_trial(trial, tmp_path / "scratch.parquet", "first line\nα β\n\udcff\n")

    assert "first line\nα β\n?\n" == archive.read_log(trial.trial_id), "half a character costs no trial"
    assert frame.equals(pl.read_parquet(archive.requests_path(trial.trial_id)))


def test_newer_formats_are_refused_with_what_to_install(archive: Archive) -> None:
    """A file of a newer format, with keys that this version does not know, says so rather than 'extra key'."""
    path = archive.path / "sweep.json"
    now = f'"format_version":{FORMAT_VERSION}'
    path.write_text(path.read_text().replace(now, f'"format_version":{FORMAT_VERSION + 1},"new_key":0'))

    with pytest.raises(ArchiveError, match=rf"format version {FORMAT_VERSION + 1}.*Install the TokenPeak"):
        archive.read_sweep()


def test_older_formats_are_upgraded_on_reading(archive: Archive) -> None:
    """An archive of version 1 reads as one of this version, and its files stay as they are."""
    first = min((archive.path / "trials").glob("*.json"))
    first.write_text(first.read_text().replace('"holdout":false', '"holdout":true'))
    before = archive.read_sweep(), list(archive.trials()), archive.read_end()
    files = [archive.path / "sweep.json", archive.path / "end.json", *(archive.path / "trials").glob("*.json")]
    for path in files:
        text = path.read_text().replace(f'"format_version":{FORMAT_VERSION}', '"format_version":1', 1)
        path.write_text(text.replace('"holdout":', '"other_requests":'))

    assert before == (archive.read_sweep(), list(archive.trials()), archive.read_end())
    assert [] == archive.malformed
    assert all('"format_version":1' in path.read_text() for path in files)


HOURS = [{"hours": [22, 6], "begin": None, "end": None, "price_per_kwh": 0.1}]


def test_older_specs_and_fields_that_are_gone_are_read(archive: Archive) -> None:
    """Answers were not compared where a spec says `null`; what nothing reads any more does not hinder reading."""
    before = archive.read_sweep(), list(archive.trials())
    path = archive.path / "sweep.json"
    raw = json.loads(path.read_text())
    raw["spec"] |= {"node_screening": {"outliers": "exclude", "launches": 2}, "quality": None}
    raw["spec"]["energy"]["hours"] = HOURS
    path.write_text(json.dumps(raw))
    for trial in (archive.path / "trials").glob("*.json"):
        trial.write_text(json.dumps({**json.loads(trial.read_text()), "node_screening": True}))
    (archive.path / "trials" / ".0017-deadbeef.json.part").write_text('{"format_ver')
    was, now = (parse_spec(sweep.spec, path) for sweep in (before[0], archive.read_sweep()))

    assert was.model_copy(update={"quality": False}) == now
    assert before[1] == list(archive.trials())
    assert [] == archive.malformed


def test_nothing_is_written_twice(archive: Archive) -> None:
    """Neither a sweep nor a trial is ever overwritten."""
    with pytest.raises(ArchiveError, match="exists already"):
        archive.write_sweep(archive.read_sweep())
    with pytest.raises(ArchiveError, match="exists already"):
        archive.write_trial(next(archive.trials()))


def test_each_file_is_synced_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data reach the disk, then the name, then the folder; the trial's JSON comes after its log."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def traced_fsync(descriptor: int) -> None:
        events.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def traced_replace(self: Path, target: Path) -> Path:
        events.append(f"rename {target.name}")
        return replace(self, target)

    trial = trial_record(sweep_spec())[0]
    archive = Archive(tmp_path)
    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "replace", traced_replace)
    archive.write_trial(trial, None, "log")

    log, record = f"{trial.trial_id}.engine.log.zst", f"{trial.trial_id}.json"
    assert [
        f"fsync {tmp_path.name}",
        f"fsync .{log}.{os.getpid()}.part",
        f"rename {log}",
        "fsync trials",
        f"fsync .{record}.{os.getpid()}.part",
        f"rename {record}",
        "fsync trials",
    ] == events


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails is an error that names the file, and leaves neither the file nor its beginning."""

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "trials").mkdir()
    monkeypatch.setattr(os, "fsync", no_space)

    with pytest.raises(ArchiveError, match="No space left on device"):
        Archive(tmp_path).write_trial(trial_record(sweep_spec())[0])
    assert [] == list((tmp_path / "trials").iterdir())


def test_pack_beside_its_folder_is_not_read_twice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that was packed where it lies is read from its folder; a pack alone is read."""
    home = archive.path.parent
    monkeypatch.setenv("TOKENPEAK_STATE", str(home / "state"))
    pack(archive.path, home / "small.tar.zst")

    assert [archive.path] == [found.path for found in find_archives([home])]
    shutil.rmtree(archive.path)
    assert ["small"] == [found.path.name for found in find_archives([home])]
