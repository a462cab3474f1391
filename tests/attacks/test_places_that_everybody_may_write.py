"""Somebody on the same machine puts links where a user builds or publishes a site in a folder that everybody may write.

Whoever may rename what lies in such a folder puts a link in place of the one that a site is being made in, and files of
the user's elsewhere are written. So nothing is written there without the sticky bit; with it, as in /tmp, nothing that
somebody else made there first is used.
"""

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tests.attacks.conftest import ATTACKER

from tokenpeak import own_place, spreadsheet
from tokenpeak.cli import tokenpeak
from tokenpeak.cli.options import make_output_folder
from tokenpeak.errors import InputError
from tokenpeak.own_place import make_own, require_unmoved
from tokenpeak.report.site import build, publish

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


@pytest.fixture
def shared(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to share, for a user who is not root."""
    monkeypatch.setattr(own_place.os, "geteuid", lambda: ATTACKER - 1)
    folder = place / "shared"
    folder.mkdir()
    return folder


WRITERS: dict[str, Callable[[Path], object]] = {
    "build": lambda folder: build.build_site([folder], folder / "site"),
    "build below": lambda folder: build.build_site([folder], folder / "new" / "site"),
    "publish": lambda folder: publish._to_folder(folder, str(folder / "site"), dry_run=False, say=lambda _: None),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_written_where_everybody_can_lead_it_elsewhere(shared: Path, writer: str) -> None:
    """The folder and the ways out are named before anything is made."""
    shared.chmod(0o777)

    with pytest.raises(InputError, match=rf"everybody can write {shared}. .*chmod o-w .*chmod \+t"):
        WRITERS[writer](shared)

    assert [] == [*shared.iterdir()]


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o2775, 0o775])
def test_folders_that_stay_possible(shared: Path, mode: int) -> None:
    """One's own, one like /tmp, and one that a group works in."""
    shared.chmod(mode)

    require_unmoved(shared / "new", "site", "")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2775])
def test_root_shares_with_nobody(place: Path, mode: int) -> None:
    """What a group may write is no place for root's site; in /tmp, a folder of root's own is."""
    (place / "shared").mkdir()
    (place / "shared").chmod(mode)

    if mode & 0o1000:
        make_own(place / "shared" / "mine")
        require_unmoved(place / "shared" / "mine", "site", "")
    else:
        with pytest.raises(InputError, match="Root writes no site to"):
            require_unmoved(place / "shared", "site", "")


@pytest.mark.parametrize("name", [".site.making-{}", ".site.made.json", "site"])
def test_names_that_somebody_took_before(place: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Beside a site in a sticky folder, what another user made by our names is neither written through nor read."""
    folder, theirs = place / "tmp", place / "theirs"
    folder.mkdir()
    folder.chmod(0o1777)
    theirs.mkdir()
    taken = folder / name.format(os.getpid())
    taken.symlink_to(theirs)
    os.lchown(taken, ATTACKER, ATTACKER)
    # Nobody but root could remove what the sticky bit protects.
    monkeypatch.setattr(build, "delete_if_possible", lambda _: None)
    monkeypatch.setattr(build, "require_unmoved", lambda *_: None)

    with pytest.raises((InputError, build.ReportError), match=r"not ours|another user's|is a link"):
        build.build_site([], folder / "site")

    assert [] == [*theirs.iterdir()]


@pytest.fixture
def taken(shared: Path, tmp_path: Path) -> Path:
    """`exported` in a folder like /tmp, another user's, with a link by the name of a file of an export."""
    (tmp_path / "precious").write_text("the operator's own")
    shared.chmod(0o1777)
    folder = shared / "exported"
    folder.mkdir()
    (folder / "columns.csv").symlink_to(tmp_path / "precious")
    os.lchown(folder / "columns.csv", ATTACKER, ATTACKER)
    os.chown(folder, ATTACKER, ATTACKER)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["export", "."],
        ["export", ".", "--output", "exported/new"],
        ["archive", "x", "--output", "exported/x.tar.zst"],
        ["gate", ".", "--against", ".", "--json", "exported/columns.csv"],
    ],
)
def test_output_that_somebody_took_before(taken: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """No command writes there, by whatever user: the folder of another's is named."""
    monkeypatch.chdir(taken.parent)
    refused = CliRunner().invoke(tokenpeak, words)

    assert isinstance(refused.exception, InputError), refused.output
    assert f"where {taken} is another user's, in a folder that everybody may write" in str(refused.exception)


def test_somebody_who_is_faster(taken: Path) -> None:
    """Between the look at the option and the making of the folder."""
    with pytest.raises(InputError, match="is another user's"):
        make_output_folder(taken)


@pytest.mark.parametrize("name", ["columns.csv", ".columns.csv.{}.part"])
def test_links_are_replaced_by_what_is_written(tmp_path: Path, name: str) -> None:
    """By the name of a table or of what it is made as, a link leads nothing elsewhere."""
    (tmp_path / "precious").write_text("the operator's own")
    (tmp_path / name.format(os.getpid())).symlink_to(tmp_path / "precious")

    spreadsheet.write_rows(tmp_path / "columns.csv", [["table"]])
    (tmp_path / "columns.csv").unlink()
    (tmp_path / name.format(os.getpid())).symlink_to(tmp_path / "precious")
    spreadsheet.write_frame(pl.DataFrame({"a": [1]}), tmp_path / "columns.csv")

    assert "the operator's own" == (tmp_path / "precious").read_text()
    assert ["columns.csv", "precious"] == sorted(path.name for path in tmp_path.iterdir())


def test_what_is_made_is_written_by_nobody_else(place: Path) -> None:
    """Whatever this process leaves open to everybody otherwise."""
    before = os.umask(0)
    try:
        make_own(place / "made")
    finally:
        os.umask(before)

    assert 0o775 == (place / "made").stat().st_mode & 0o7777
