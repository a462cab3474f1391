"""Archives are written whole or not at all, read file by file whichever version wrote them, and removed by rule."""

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from archive_factory import make_archive, sweep_spec, trial_record
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import ArchiveError, InputError
from tokenpeak.records import FORMAT_VERSION, EndRecord
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.store.pack import pack
from tokenpeak.store.retention import Kept, Retention


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


def test_pack_beside_its_folder_is_not_read_twice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that was packed where it lies is read from its folder; a pack alone is read."""
    home = archive.path.parent
    monkeypatch.setenv("TOKENPEAK_STATE", str(home / "state"))
    pack(archive.path, home / "small.tar.zst")

    assert [archive.path] == [found.path for found in find_archives([home])]
    shutil.rmtree(archive.path)
    assert ["small"] == [found.path.name for found in find_archives([home])]


NOW = datetime(2026, 11, 24, tzinfo=UTC)


def kept(days: float, *, is_ended: bool = True) -> Kept:
    """An archive of a sweep that began so many days ago."""
    return Kept(path=Path(f"{days}"), started_at=NOW - timedelta(days=days), is_ended=is_ended)


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=30), st.integers(1, 30))
def test_the_newest_stay(archives: list[tuple[float, bool]], count: int) -> None:
    """Of those that ended, exactly the newest stay; others all do."""
    given_ = [replace(kept(days, is_ended=ended), path=Path(str(at))) for at, (days, ended) in enumerate(archives)]
    gone = Retention(count=count).goes(given_, NOW)
    stay = [one for one in given_ if one not in gone]

    assert all(one.is_ended for one in gone)
    assert min(count, sum(one.is_ended for one in given_)) == sum(one.is_ended for one in stay)
    assert all(one.started_at <= other.started_at for one in gone for other in stay if other.is_ended)


@pytest.mark.parametrize("text", ["0", "-1", "d", "90w", "1.5", ""])
def test_rule_that_is_none(text: str) -> None:
    """Anything else is refused with both forms."""
    with pytest.raises(InputError, match=r"give how many archives \(20\), or for how many days \(90d\)"):
        Retention.parsed(text)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three archives of completed sweeps, one that was interrupted, one that is none."""
    for name, ended in (("a", "completed"), ("b", "completed"), ("c", "completed"), ("d", "interrupted")):
        make_archive(tmp_path / "results" / name, seconds=5)
        archive = Archive(tmp_path / "results" / name)
        sweep, end = archive.read_sweep(), archive.read_end()
        assert end is not None
        archive.write_end(EndRecord.model_validate({**end.model_dump(), "status": ended}))
        changed = sweep.model_copy(update={"started_at": NOW - timedelta(days=100 - ord(name))})
        (archive.path / "sweep.json").write_text(changed.model_dump_json())
    (tmp_path / "results" / "broken").mkdir()
    (tmp_path / "results" / "broken" / "sweep.json").write_text("{}")
    return tmp_path / "results"


def pruned(*words: str, answer: str = "") -> Result:
    """The command, and what is typed at its question."""
    return CliRunner().invoke(tokenpeak, ["prune", *words], input=answer)


def left(results: Path) -> set[str]:
    """The folders that are left."""
    return {path.name for path in results.iterdir() if path.is_dir()}


def test_nothing_goes_before_the_answer(results: Path) -> None:
    """A dry run and a no change nothing, and both name what would go."""
    dry = pruned("--keep", "1", "--dry-run", str(results))
    refused = pruned("--keep", "1", str(results), answer="n\n")

    assert {"a", "b", "c", "d", "broken"} == left(results)
    assert "2 of 4 would go; 2 stay, 1 of them not ended." in dry.output
    assert str(results / "a") in dry.output
    assert 130 == refused.exit_code


def test_old_archives_go_and_can_be_packed_first(results: Path) -> None:
    """The newest completed one stays, with what was interrupted or cannot be read; packed copies can be read."""
    done = pruned("--keep", "1", "--yes", "--pack", str(results / "packed"), str(results))
    again = pruned("--keep", "1", "--yes", str(results))

    assert 0 == done.exit_code, done.output
    assert {"c", "d", "broken", "packed"} == left(results)
    assert {"a.tar.zst", "b.tar.zst"} == {path.name for path in (results / "packed").iterdir()}
    assert "Nothing to remove" in again.output
