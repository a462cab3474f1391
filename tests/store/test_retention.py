"""`tokenpeak prune`: what goes and what stays."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from archive_factory import make_archive
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import InputError
from tokenpeak.records import EndRecord
from tokenpeak.store.archive import Archive, Kept, Retention

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
