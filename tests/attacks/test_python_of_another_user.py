"""The engine's user owns the Python that `install` is started by, or a part of it that the node script loads.

`install` wrote that Python into root's command and the guard's unit, so its owner was root from then on. It refuses,
and says which file is whose.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tokenpeak.node.installation import rights

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's files need root to make them")

NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose parents are root's alone, or sticky."""
    return tmp_path


def test_python_of_root() -> None:
    """The Python of these tests is root's."""
    if Path(sys.executable).stat().st_uid != 0:
        pytest.skip("the tests themselves are run by a Python of another user")

    assert [] == rights.python_problems()


@pytest.mark.parametrize("part", ["program", "folder", "library", "module", "compiled module"])
def test_part_of_python_that_another_user_owns(place: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Program, its folder, library, a module or what a module was compiled to."""
    library = place / "lib" / "python3"
    (library / "__pycache__").mkdir(parents=True)
    program = place / "bin" / "python3"
    program.parent.mkdir()
    files = {
        "program": program,
        "folder": program.parent,
        "library": library,
        "module": library / "json.py",
        "compiled module": library / "__pycache__" / "json.pyc",
    }
    for path in (program, library / "os.py", files["module"], files["compiled module"]):
        path.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(os, "__file__", str(library / "os.py"))
    monkeypatch.setattr(json, "__file__", str(files["module"]))
    monkeypatch.setattr(json, "__cached__", str(files["compiled module"]))
    before = rights.python_problems()
    os.chown(files[part], NOBODY, NOBODY)

    found = rights.python_problems()
    monkeypatch.undo()

    assert [] == before
    assert f"{files[part]} belongs to user nobody: whoever that is would be root" in found[0]
    assert "tokenpeak_python" in found[0]


def test_declared_tools(place: Path) -> None:
    """A folder of tools that root looks into first."""
    (place / "nvidia-smi").touch(mode=0o755)
    os.chown(place / "nvidia-smi", NOBODY, NOBODY)

    assert "tokenpeak_tools" in rights.tools_problems({"tools": str(place)})[0]
