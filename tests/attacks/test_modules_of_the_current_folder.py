"""A local user plants `tokenpeak/`, and modules named as Python's own, in a folder where somebody else stands.

`python -m` and `python -c` look for modules in the current folder first, and so does each process of multiprocessing.
What the command line starts looks for none there.
"""

import ast
import multiprocessing
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.cli import main

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


def test_process_of_multiprocessing(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started with `-c` and without an option of ours: the environment that the command line sets counts."""
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setattr(sys, "argv", ["tokenpeak", "--version"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.chdir(planted)
    with pytest.raises(SystemExit):
        main()

    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe(duplex=False)
    process = context.Process(target=operator.methodcaller("send", "at work"), args=(theirs,))
    process.start()
    process.join(60)

    assert [] == loaded(planted)
    assert "at work" == connection.recv()


def test_no_python_of_the_package_looks_there() -> None:
    """Each argv that begins with a Python and names a module or code has -P or -I before it."""
    argvs = {f"{path.relative_to(PACKAGE)}:{argv.lineno}": argv for path in _modules() for argv in _argvs(path)}
    open_ones = [place for place, argv in argvs.items() if not _is_closed(argv)]

    assert len(argvs) >= 8, "argvs of Python are recognized no longer"
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
