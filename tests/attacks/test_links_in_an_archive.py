"""Somebody hands over an archive whose files are links to private ones of whoever packs, resumes, applies or prunes it.

What they lead to would leave with the packed file, or end in a traceback. An archive with a link is refused, and named.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import ArchiveError
from tokenpeak.store.archive import archive_below
from tokenpeak.store.pack import pack, unpacked

SECRET = "kn4ry-of-home"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that never leaves."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "hosts.yml").write_text(f"pin: {SECRET}\n")
    return folder


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody else's archive, in the results."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return make_archive(tmp_path / "results" / "theirs", axes={"max_num_seqs": [8]}, requests=4).path


def _link_trials(archive: Path, private: Path) -> None:
    (archive / "trials").rename(private / "trials")
    (archive / "trials").symlink_to(private / "trials")


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "claims": lambda archive, private: (archive / "claims.yml").symlink_to(private / "hosts.yml"),
    "notes": lambda archive, private: (archive / "notes.txt").symlink_to(private / "hosts.yml"),
    "folder": lambda archive, private: (archive / "more").symlink_to(private),
    "trials": _link_trials,
    "circle": lambda archive, private: (archive / "x").symlink_to(archive / "x"),
}


@pytest.mark.parametrize("link", LINKS)
def test_it_is_not_opened(theirs: Path, private: Path, link: str) -> None:
    """To go on with it or to apply what it found."""
    LINKS[link](theirs, private)

    with pytest.raises(ArchiveError, match=r"is a link\. Put the (file|folder) itself"):
        archive_below(theirs.parent, theirs.name)


@pytest.mark.parametrize("options", [[], ["--keep-everything"], ["--keep-everything", "--summaries"]])
@pytest.mark.parametrize("link", LINKS)
def test_it_is_not_packed(theirs: Path, private: Path, tmp_path: Path, link: str, options: list[str]) -> None:
    """Cleaned or as it is."""
    LINKS[link](theirs, private)
    done = CliRunner().invoke(tokenpeak, ["archive", str(theirs), *options, "--output", str(tmp_path / "x.tar.zst")])

    assert isinstance(done.exception, ArchiveError), done.output
    assert not (tmp_path / "x.tar.zst").exists()


@pytest.mark.parametrize("link", LINKS)
def test_it_is_neither_packed_nor_removed(theirs: Path, private: Path, tmp_path: Path, link: str) -> None:
    """By `prune`, which names it."""
    LINKS[link](theirs, private)
    words = ["prune", "--keep", "1d", "--yes", "--pack", str(tmp_path / "packed")]
    done = CliRunner().invoke(tokenpeak, [*words, str(theirs.parent)])

    assert "is a link" in done.output, done.output
    assert theirs.is_dir()
    assert not (tmp_path / "packed").exists()


def test_link_further_below(theirs: Path, private: Path, tmp_path: Path) -> None:
    """What is no part of the format is packed as it is, and no link of it is followed."""
    (theirs / "more" / "inner").mkdir(parents=True)
    (theirs / "more" / "inner" / "x").symlink_to(private / "hosts.yml")
    (theirs / "more" / "y").symlink_to(private)

    folder = unpacked(pack(theirs, tmp_path / "x.tar.zst", summaries=True), tmp_path / "kept")

    assert not (folder / "more").exists()
    assert (folder / "trials").is_dir()
    assert [] == [*(folder / "trials").glob("*.parquet")]
