"""A caller of root's command has it run something of his: a program of his PATH, his limits, a Python that he owns.

Root's command leaves all of that behind before it does anything, and refuses a caller that has set what the kernel
never sets back. `install` refuses a Python of which another user owns a part, for it would be root's from then on.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.conftest import needs_root

from tokenpeak.node import installation, rights
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.machine import root_environment
from tokenpeak.node.machine.state import State

TOOLS = ("nice", "taskset", "chrt", "ionice")
CALLER = """
ulimit -S -n 64
umask 0
trap "" TERM CHLD HUP
export PATH={evil} TOKENPEAK_CANARY=canary HOME={evil} ENV={evil}/rc BASH_ENV={evil}/rc
echo 800 > /proc/self/oom_score_adj
exec taskset -c {processor} chrt --idle 0 ionice -c 3 nice -n 5 {wrapper} {word}
"""
SCHEDULED = "taskset -p $$; chrt -p $$ | head -1; ionice -p $$; cat /proc/self/oom_score_adj"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that root alone may write, as a state folder's is."""
    found = Path(tempfile.mkdtemp(prefix="tokenpeak-attack-", dir="/var/lib"))
    yield found
    shutil.rmtree(found)


@needs_root
def test_root_runs_nothing_of_the_caller_s(home: Path) -> None:
    """No program of his PATH is run, and what root starts has root's own variables, limits, mask and signals."""
    evil, marker, seen = home / "evil", home / "was-here", home / "seen"
    evil.mkdir()
    for name in ("nvidia-smi", "amd-smi", "rocm-smi", "env", "cat", "python3", "sh", *TOOLS):
        (evil / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\n")
        (evil / name).chmod(0o755)
    for name in TOOLS:
        (evil / name).unlink()
        (evil / name).symlink_to(f"/usr/bin/{name}")
    (evil / "rc").write_text(f"echo rc >> {marker}\n")
    state = State.make(home / "state")
    write_bundle(state.path("tokenpeak-node.pyz"))
    check = ["/bin/sh", "-c", f"(env; umask; ulimit -n; grep SigIgn /proc/$$/status; nice; {SCHEDULED}) > {seen}"]
    declared = {"manager": "command", "check": check, "start": ["/bin/true"], "stop": ["/bin/true"]}
    state.write("node.json", {"production": declared, "engine": {"command": ["/bin/true"], "user": "nobody"}})
    wrapper = home / "tokenpeak-node"
    installation.put_commands(state, {"guard_command": str(wrapper)})

    processor = min(os.sched_getaffinity(1))
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            CALLER.format(processor=processor, evil=evil, wrapper=wrapper, word="probe"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(done.stdout)["kernel"], done
    assert not marker.exists(), marker.read_text()
    *variables, umask, files, ignored, niceness, processors, policy, disk, oom = seen.read_text().splitlines()
    assert "canary" not in seen.read_text()
    assert f"PATH={root_environment.FIXED['PATH']}" in variables
    assert f"HOME={root_environment.FIXED['HOME']}" in variables
    assert "0022" == umask
    assert "64" != files
    assert not int(ignored.split()[1], 16) & (1 << 14 | 1 << 16), "SIGTERM and SIGCHLD are not ignored"
    assert "0" == niceness
    of_init = subprocess.run(["/usr/bin/taskset", "-p", "1"], capture_output=True, text=True, check=True).stdout
    assert of_init.split()[-1] == processors.split()[-1]
    assert "SCHED_OTHER" == policy.split()[-1]
    assert "none: prio 0" == disk
    assert "0" == oom


@needs_root
def test_attributes_that_survive_execve() -> None:
    """Of all that a caller can set of himself, root's command has nothing, and where that stays it does nothing."""
    script = Path(__file__).with_name("caller_with_attributes.py")
    package = Path(root_environment.__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(package)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["set"]["timerslack_ns"] == str(10**16)
    assert seen["set"]["personality"] == "00000008"
    of_init = {name: Path("/proc/1", name).read_text().strip() for name in ("timerslack_ns", "coredump_filter")}
    assert seen["left"] == {**seen["plain"], **of_init, "disk": 0}
    assert seen["keyring"] != seen["keyring of the caller"] or seen["keyring"] < 0
    refusal = seen.get("refusal", "")
    assert ("PR_SET_MDWE" in refusal) == seen["memory denied"]
    assert ("Speculation_Store_Bypass" in refusal) == seen["guesses denied"]


NOBODY = 65534


@needs_root
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


@needs_root
def test_control_group_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's command leaves each group that is not the first process's for that one's; a unit of systemd's stays."""
    for name in ("freezer/init", "unified"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").touch()
    of_init = {"freezer": "/init", "cpu": "/", "": "/"}
    groups = {1: of_init, os.getpid(): {"freezer": "/his", "cpu": "/", "": "/his", "pids": "/his"}}
    monkeypatch.setattr(root_environment, "_groups", groups.get)
    monkeypatch.setattr(root_environment, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(root_environment, "_SYSTEMD", tmp_path)

    root_environment._join_groups_of_init()
    assert not any(file.read_text() for file in tmp_path.rglob("cgroup.procs"))

    monkeypatch.setattr(root_environment, "_SYSTEMD", tmp_path / "none")
    root_environment._join_groups_of_init()
    assert [file.read_text() for file in tmp_path.rglob("cgroup.procs")] == ["0", "0"]
