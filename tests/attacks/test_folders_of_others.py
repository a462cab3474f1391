"""A local user of the controller puts links, modules and notebooks where somebody else, root for one, works.

What a working folder holds runs as whoever uses it, and a link leads a deletion or a new file elsewhere. So a folder
that others can write, or that is another's, is refused in words that say how to go on, and nothing is loaded there.
"""

import ast
import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.attacks.conftest import ATTACKER, needs_root

from tokenpeak import cli, own_place, paths
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import InputError
from tokenpeak.files import delete
from tokenpeak.node.machine import trust
from tokenpeak.own_place import require_unmoved, require_working_folder
from tokenpeak.report.site import build, publish
from tokenpeak.sweep import installation

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


@needs_root
def test_root_builds_and_publishes_nothing_there(theirs: Path, place: Path) -> None:
    """Whatever is written in another's folder can be led elsewhere meanwhile: the way out is said before."""
    with pytest.raises(InputError, match=REFUSED):
        build.build_site([place], theirs / "site")
    with pytest.raises(InputError, match=REFUSED):
        publish._to_folder(place, str(theirs / "site"), dry_run=False, say=lambda _: None)

    assert [] == [*theirs.iterdir()]


@needs_root
@pytest.mark.parametrize("way", ["folder", "above"])
def test_folder_on_the_way_that_is_a_link(theirs: Path, thesis: Path, way: str) -> None:
    """A link that the attacker can put in place of a folder is not followed to what is to be deleted."""
    folder = theirs / "results"
    link(folder, thesis.parents[1] if way == "folder" else thesis.parents[2])
    target = folder / "years" if way == "folder" else folder / "roots" / "years"

    with pytest.raises(OSError, match="a link that others could have put there"):
        delete(target)

    assert thesis.is_file()


@pytest.fixture
def shared(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to share, for a user who is not root."""
    monkeypatch.setattr(own_place.os, "geteuid", lambda: ATTACKER - 1)
    folder = place / "shared"
    folder.mkdir()
    return folder


SITE_WRITERS: dict[str, Callable[[Path], object]] = {
    "build": lambda folder: build.build_site([folder], folder / "site"),
    "publish": lambda folder: publish._to_folder(folder, str(folder / "site"), dry_run=False, say=lambda _: None),
}


@needs_root
@pytest.mark.parametrize("writer", SITE_WRITERS)
def test_nothing_is_written_where_everybody_can_lead_it_elsewhere(shared: Path, writer: str) -> None:
    """The folder and the ways out are named before anything is made."""
    shared.chmod(0o777)

    with pytest.raises(InputError, match=rf"everybody can write {shared}. .*chmod o-w .*chmod \+t"):
        SITE_WRITERS[writer](shared)

    assert [] == [*shared.iterdir()]


@needs_root
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


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        ["export", "."],
        ["gate", ".", "--against", ".", "--json", "exported/columns.csv"],
    ],
)
def test_output_that_somebody_took_before(taken: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """No command writes there, by whatever user: the folder of another's is named."""
    monkeypatch.chdir(taken.parent)
    refused = CliRunner().invoke(tokenpeak, words)

    assert isinstance(refused.exception, InputError), refused.output
    assert f"where {taken} is another user's, in a folder that everybody may write" in str(refused.exception)


ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")


def made(folder: Path) -> Path:
    """A working folder with a notebook of its own."""
    for name in ("inventory", "sweeps", "notebooks"):
        (folder / name).mkdir(parents=True)
    (folder / "notebooks" / "own.ipynb").write_text("{}")
    return folder


def given(path: Path) -> None:
    os.chown(path, ATTACKER, ATTACKER)


def listed(path: Path, name: str) -> None:
    """Let the attacker write by an access list, whose bits stand where the group's do."""
    nobody = 0xFFFFFFFF
    entries = [(1, 7, nobody), (2, 7, ATTACKER), (4, 5, nobody), (0x10, 7, nobody), (0x20, 5, nobody)]
    packed = b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, name, struct.pack("<I", 2) + packed)


def led(path: Path) -> None:
    """In place of it, a link into a folder of the attacker's."""
    theirs = path.parent.parent.with_name("theirs")
    theirs.mkdir()
    given(theirs)
    (path.rename(theirs / path.name) if path.exists() else None)
    path.symlink_to(theirs / path.name)


ATTACKS: dict[str, Callable[[Path], None]] = {
    "sticky, as /tmp": lambda folder: folder.chmod(0o1777),
    "written by a group": lambda folder: folder.chmod(0o775),
    "another's": given,
    "another's notebook": lambda folder: given(folder / "notebooks" / "own.ipynb"),
    "notebook that others write": lambda folder: (folder / "notebooks" / "own.ipynb").chmod(0o666),
    "notebook behind a link": lambda folder: led(folder / "notebooks" / "own.ipynb"),
    "results of another's": lambda folder: ((folder / "results").mkdir(), given(folder / "results"))[1],
    "in another's folder": lambda folder: given(folder.parent),
}


@needs_root
@pytest.mark.parametrize(
    ("part", "name"), [*itertools.product(["", "inventory"], ACCESS_LISTS), ("notebooks/own.ipynb", ACCESS_LISTS[0])]
)
def test_access_list(place: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str) -> None:
    """Write rights of the user's own group are his; those of an access list, in the same bits, are another's."""
    monkeypatch.setattr(trust, "_is_own_group", lambda *_: True)
    folder = made(place / "scratch")
    path = folder / part
    path.chmod(0o775)
    require_working_folder(folder)
    try:
        listed(path, name)
    except OSError:
        pytest.skip("this file system has no access lists")

    with pytest.raises(InputError, match=r"can be written by others \(mode 775, and an access list: see getfacl\)"):
        require_working_folder(folder)


@needs_root
@pytest.mark.parametrize("attack", ATTACKS)
def test_working_folder_of_others_is_refused(place: Path, attack: str) -> None:
    """Each by its own words, and with the way out."""
    folder = made(place / "around" / "scratch")
    require_working_folder(folder)
    ATTACKS[attack](folder)

    with pytest.raises(InputError, match=r"is in the hands of others: .*(chmod go-w, chown).* tokenpeak init"):
        require_working_folder(folder)


@needs_root
@pytest.mark.parametrize("words", [["report"], ["sweep", "--inventory", "sim"], ["demo"]])
def test_no_command_works_there(place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Whatever reads the folder, or may; what it does is said all the same."""
    folder = made(place / "scratch")
    given(folder)
    for module in (paths, cli):
        monkeypatch.setattr(module, "HOME", folder)

    refused = CliRunner().invoke(cli.tokenpeak, words)
    helped = CliRunner().invoke(cli.tokenpeak, [words[0], "--help"])

    assert isinstance(refused.exception, InputError)
    assert "belongs to user nobody" in str(refused.exception)
    assert 0 == helped.exit_code


@needs_root
def test_state_of_root_in_a_home_of_others(place: Path) -> None:
    """Root with another's HOME, as some `sudo` leaves it, writes no secrets into that user's folders."""
    home = place / "home"
    (home / ".local").mkdir(parents=True)
    given(home)

    with pytest.raises(InputError, match=r"others could lead elsewhere by a link: .* belongs to user nobody.*sudo -H"):
        require_unmoved(home / ".local" / "state" / "tokenpeak", "state", "Use sudo -H.")
    require_unmoved(place / "roots" / "state", "state", "")


LOCK = ".secrets-lock"


@pytest.fixture
def open_state(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A open_state folder that every user can enter."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(place))
    return place


@needs_root
def test_other_user_cannot_open_the_lock(open_state: Path) -> None:
    """As that user tries."""
    installation.master_secret()
    tried = subprocess.run(["test", "-r", str(open_state / LOCK)], user=ATTACKER, group=ATTACKER, check=False)

    assert tried.returncode != 0


PACKAGE = Path(__file__).parents[2] / "analysis" / "tokenpeak"
NODE = PACKAGE / "node"
"""Its script runs on Python 3.8 too, which has no -P: as a zipapp with -I, and what it starts begins in `/`."""
PLANTED = ("tokenpeak", "multiprocessing", "json", "ansible", "polars")


@pytest.fixture
def planted(place: Path) -> Path:
    """A folder as /tmp is, in which another user has put packages; whatever loads one leaves a file `loaded-…`."""
    place.chmod(0o1777)
    for name in PLANTED:
        (place / name).mkdir()
        (place / name / "__init__.py").write_text(f"open({str(place / f'loaded-{name}')!r}, 'w').close()\n")
        if os.geteuid() == 0:
            os.chown(place / name, ATTACKER, ATTACKER)
    return place


def loaded(folder: Path) -> list[str]:
    """Which of them were."""
    return sorted(path.name for path in folder.glob("loaded-*"))


@pytest.mark.integration
def test_command_that_is_typed_there(planted: Path, tmp_path: Path) -> None:
    """The real command with all that it starts: the inventory's resolver, Ansible, the nodes' own scripts."""
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONSAFEPATH", "TOKENPEAK_HOME")}
    environment |= {"HOME": str(tmp_path), "TOKENPEAK_STATE": str(tmp_path / "state")}
    argv = [str(Path(sys.executable).with_name("tokenpeak")), "status", "--inventory", "sim"]

    done = subprocess.run(argv, cwd=planted, env=environment, capture_output=True, text=True, check=False)

    assert [] == loaded(planted), done
    assert "sim-h100" in done.stdout, done


def test_no_python_of_the_package_looks_there() -> None:
    """Each argv that begins with a Python and names a module or code has -P or -I before it."""
    argvs = {f"{path.relative_to(PACKAGE)}:{argv.lineno}": argv for path in _modules() for argv in _argvs(path)}
    open_ones = [place for place, argv in argvs.items() if not _is_closed(argv)]

    assert len(argvs) >= 7, "argvs of Python are recognized no longer"
    assert [] == open_ones


def _modules() -> Iterator[Path]:
    return (path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(NODE))


def _argvs(path: Path) -> Iterator[ast.List | ast.Tuple]:
    """Lists and tuples that begin with `sys.executable`, or something that has Python in its name, and run a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = ast.unparse(node.elts[0]).lower()
            if ("sys.executable" in first or "python" in first) and {"-m", "-c"} & {*_words(node)}:
                yield node


def _is_closed(argv: ast.List | ast.Tuple) -> bool:
    words = _words(argv)
    place = min(words.index(word) for word in ("-m", "-c") if word in words)
    return bool({"-P", "-I"} & {*words[:place]})


def _words(argv: ast.List | ast.Tuple) -> list[object]:
    return [one.value for one in argv.elts if isinstance(one, ast.Constant)]
