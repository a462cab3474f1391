"""Somebody else's folder is where root, or a user of a shared folder, builds, publishes, unpacks or prunes.

Links by the names that TokenPeak uses beside its own must lead no deletion elsewhere, nor may what somebody else keeps
there be taken for ours.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.attacks.conftest import ATTACKER

from tokenpeak.atomic import write_atomically
from tokenpeak.cli import tokenpeak
from tokenpeak.deletion import delete
from tokenpeak.errors import InputError
from tokenpeak.report.site import build, publish, reuse

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


REFUSED = r"Root writes no site to .*, which others could lead elsewhere by a link: .* belongs to user nobody"


@pytest.fixture
def thesis(place: Path) -> Path:
    """What must stay, in a folder of root's."""
    path = place / "roots" / "years" / "thesis.tex"
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    return path


@pytest.fixture
def theirs(place: Path) -> Path:
    """A folder of the attacker's."""
    folder = place / "theirs"
    folder.mkdir()
    os.chown(folder, ATTACKER, ATTACKER)
    return folder


def link(path: Path, target: Path) -> None:
    """As the attacker makes one."""
    path.symlink_to(target)
    os.lchown(path, ATTACKER, ATTACKER)


@pytest.mark.parametrize("name", ["making", "former"])
def test_other_names_beside_a_site(theirs: Path, thesis: Path, name: str) -> None:
    """A link goes as a link, and not what it leads to."""
    output = theirs / "site"
    output.mkdir()
    link(theirs / f".site.{name}-{os.getpid()}", thesis.parents[1])

    build.leave(output)

    assert thesis.is_file()


def test_note_of_a_site(theirs: Path, thesis: Path) -> None:
    """What is noted beside the site takes the place of a link, and does not go where it leads."""
    link(theirs / ".site.made.json", thesis)

    reuse.write(theirs / "site", {})

    assert "years of work" == thesis.read_text()


def test_root_builds_and_publishes_nothing_there(theirs: Path, place: Path) -> None:
    """Whatever is written in another's folder can be led elsewhere meanwhile: the way out is said before."""
    with pytest.raises(InputError, match=REFUSED):
        build.build_site([place], theirs / "site")
    with pytest.raises(InputError, match=REFUSED):
        publish._to_folder(place, str(theirs / "site"), dry_run=False, say=lambda _: None)

    assert [] == [*theirs.iterdir()]


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "x", "--output", "THEIRS/x.tar.zst"],
        ["export", ".", "--output", "THEIRS/exported"],
        ["import", "x.json", "--output", "THEIRS"],
        ["prune", "--keep", "1", "--pack", "THEIRS"],
        ["load", "http://127.0.0.1:9", "--output", "THEIRS/run.json"],
    ],
)
def test_root_writes_no_output_there(theirs: Path, words: list[str]) -> None:
    """Nor does any other command."""
    refused = CliRunner().invoke(tokenpeak, [word.replace("THEIRS", str(theirs)) for word in words])

    assert isinstance(refused.exception, InputError), refused.output
    assert "Root writes no output to" in str(refused.exception)


@pytest.mark.parametrize("way", ["folder", "above"])
def test_folder_on_the_way_that_is_a_link(theirs: Path, thesis: Path, way: str) -> None:
    """A link that the attacker can put in place of a folder is not followed to what is to be deleted."""
    folder = theirs / "results"
    link(folder, thesis.parents[1] if way == "folder" else thesis.parents[2])
    target = folder / "years" if way == "folder" else folder / "roots" / "years"

    with pytest.raises(OSError, match="a link that others could have put there"):
        delete(target)

    assert thesis.is_file()


def test_links_in_what_is_deleted(theirs: Path, thesis: Path) -> None:
    """All of a folder goes, links as links."""
    folder = theirs / "old"
    (folder / "inner").mkdir(parents=True)
    link(folder / "inner" / "link", thesis.parents[1])
    (folder / "file").write_text("")

    delete(folder)

    assert not folder.exists()
    assert thesis.is_file()


def test_folder_that_becomes_a_link_meanwhile(theirs: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at an entry and its deletion, a link takes its place."""
    folder = theirs / "old"
    (folder / "inner").mkdir(parents=True)
    real: Callable[..., int] = os.open

    def swapping(path: str, *rest: object, **options: object) -> int:
        if path == "inner" and not (folder / "inner").is_symlink():
            (folder / "inner").rename(theirs / "away")
            link(folder / "inner", thesis.parents[1])
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(OSError, match=r"Not a directory|link"):
        delete(folder)

    assert thesis.is_file()


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to], ids=["link", "second name"])
def test_part_of_a_file_that_is_there(theirs: Path, thesis: Path, put: Callable[[Path, Path], None]) -> None:
    """The name under which a file is written first leads to another: that one is not written."""
    target = theirs / "end.json"
    put(theirs / f".end.json.{os.getpid()}.part", thesis)

    write_atomically(target, "{}")

    assert "years of work" == thesis.read_text()
    assert "{}" == target.read_text()
