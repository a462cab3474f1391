"""The tuner calls root's command with an environment of his own: a PATH with programs of his, limits, ignored signals.

Without `secure_path` in sudoers root ran his `nvidia-smi`, and production that is kept as a process was started again
with his limits, on the one processor that he chose, with the least claim to it and to the disk, and as the first that
the kernel's memory killer ends. Root's command leaves all of that behind before it does anything.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak.node import launcher, root_environment
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.state import State

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what root runs for another user needs root to play it")

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
    launcher.install(state, {"guard_command": str(wrapper)})

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
