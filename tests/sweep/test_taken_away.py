"""Nodes that are taken from a trial, or do not let it end: what is recorded, and who gives production back."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import MODEL, SPEC, Home, read_until

LEASE_S = 6
LONG: dict[str, Any] = {
    **SPEC,
    "axes": {"max_num_seqs": [8]},
    "workloads": [{**SPEC["workloads"][0], "levels": [{"concurrency": 4, "duration_s": 25}]}],
    "deadlines": {**SPEC["deadlines"], "lease_s": LEASE_S, "run_s": 90, "engine_stop_s": 3},
}
OPERATOR = """#!/bin/sh
# Production by commands, as an operator gives them: start, stop, check.
cd "$(dirname "$0")"
runs() {{ grep -q '^State:[[:space:]]*[^ZX]' "/proc/$(cat pid 2>/dev/null || echo none)/status" 2>/dev/null; }}
case $1 in
  start)
    export TOKENPEAK_SIM_START_S=0.3
    setsid ./machine/vllm serve {model} --host {address} --port 18000 --max-model-len 4096 >log 2>&1 &
    echo $! >pid ;;
  stop) kill "$(cat pid)"; while runs; do sleep 0.1; done ;;
  check) runs ;;
esac
"""


PYTHON = """#!/bin/sh
# The node's Python; once there is a file `refused`, a lease gets as far as SSH with a key that has changed.
case " $* " in *" lease "*) [ -e {refused} ] && {{ echo 'Host key verification failed.' >&2; exit 255; }} ;; esac
exec {python} "$@"
"""


class Borrowed:
    """A node whose production is run by an operator's commands, in an inventory of its own."""

    def __init__(self, home: Home, folder: Path, network: int) -> None:
        _, first, *rest = home.address.split(".")
        self.home = home
        self.address = ".".join(["127", str(int(first) - network), *rest])
        self.state = folder / "node"
        self.state.mkdir(mode=0o700)
        self.script = self.state / "operator"
        self.name = f"operated-{network}"
        inventory = home.root / "inventory" / self.name
        (inventory / "group_vars").mkdir(parents=True)
        hosts = {"one": {"tokenpeak_host": self.address, "tokenpeak_simulated_gpu": "NVIDIA L4"}}
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        shared = yaml.safe_load((home.root / "inventory" / "lone" / "group_vars" / "all.yml").read_text())
        commands = {verb: [str(self.script), verb] for verb in ("start", "stop", "check")}
        shared["tokenpeak_state_dir"] = str(self.state)
        shared["tokenpeak_produce"] = True
        self.refused = folder / "refused"
        python = folder / "python"
        python.write_text(PYTHON.format(refused=self.refused, python=sys.executable))
        python.chmod(0o755)
        shared["tokenpeak_python"] = str(python)
        shared["tokenpeak_production"] = {"manager": "command", "url": f"http://{self.address}:18000", **commands}
        (inventory / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
        (home.root / "analysis" / "sweeps" / "lasting.yml").write_text(yaml.safe_dump(LONG))
        self.script.write_text(OPERATOR.format(model=MODEL, address=self.address))
        self.script.chmod(0o755)

    def runs(self) -> bool:
        """Whether production does, by the operator's own look."""
        return os.spawnv(os.P_WAIT, str(self.script), [str(self.script), "check"]) == 0

    def operate(self, verb: str) -> None:
        os.spawnv(os.P_WAIT, str(self.script), [str(self.script), verb])

    def lease_processes(self) -> list[int]:
        """The processes that renew this node's lease."""
        mark = f"lease\0--state\0{self.state}\0".encode()
        found = []
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mark in words.read_bytes():
                    found.append(int(words.parent.name))
            except OSError:
                continue
        return found

    def is_armed(self) -> bool:
        return (self.state / "record.json").exists()

    def begin(self, home: Home) -> "Any":
        """A sweep that is under load, and what it said."""
        process = home.start("sweep", "--inventory", self.name, "--sweep", "lasting", "--no-report")
        read_until(process, " load\n")
        return process


@pytest.fixture
def borrowed(home: Home, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Borrowed]:
    made = Borrowed(home, tmp_path, request.param)
    yield made
    made.home.run("restore", "--inventory", made.name)
    if made.runs():
        made.operate("stop")


@pytest.mark.e2e
@pytest.mark.parametrize("borrowed", [83], indirect=True)
def test_no_trial_begins_without_its_lease(borrowed: Borrowed) -> None:
    """A lease that can no longer connect is known before production is stopped for the next trial."""
    deadlines = {**SPEC["deadlines"], "lease_s": 120}
    spec = {**SPEC, "deadlines": deadlines}
    (borrowed.home.root / "analysis" / "sweeps" / "leased.yml").write_text(yaml.safe_dump(spec))
    process = borrowed.home.start("sweep", "--inventory", borrowed.name, "--sweep", "leased", "--no-report")
    said = read_until(process, " load\n")
    borrowed.refused.touch()
    for pid in borrowed.lease_processes():
        os.kill(pid, signal.SIGKILL)
    said += read_until(process, " orchestration)")
    pid = (borrowed.state / "pid").read_text()
    rest, _ = process.communicate(timeout=280)

    assert 1 == process.returncode
    assert ["ok"] == [trial["status"] for trial in borrowed.home.trials(borrowed.home.archives()[-1])], said + rest
    assert "its lease could not be renewed, so no trial begins there: its host key " in rest
    assert pid == (borrowed.state / "pid").read_text()
    assert borrowed.runs()


@pytest.mark.faults
@pytest.mark.faults_ci
@pytest.mark.parametrize("borrowed", [84], indirect=True)
def test_a_person_restores_in_a_living_sweep(borrowed: Borrowed) -> None:
    """The node is held: the sweep does not take it again, both say so, and a release gives it to the resumed sweep."""
    home = borrowed.home
    process = borrowed.begin(home)
    restored = home.run("restore", "--inventory", borrowed.name)
    pid = (borrowed.state / "pid").read_text()
    said, _ = process.communicate(timeout=280)
    runs, same = borrowed.runs(), pid == (borrowed.state / "pid").read_text()
    archive = home.archives()[-1]
    released = home.run("restore", "--inventory", borrowed.name, "--release")
    again = home.run("sweep", "--resume", archive.name, "--no-report")

    assert 0 == restored.returncode, restored.stdout
    assert (
        f"It is held: no trial begins here until `tokenpeak restore --release --inventory {borrowed.name}`"
        in restored.stdout
    )
    assert 1 == process.returncode
    assert "one is left out from here on: The node was given back by `tokenpeak restore`" in said
    assert (True, True) == (runs, same), said
    assert "It is released" in released.stdout
    made = [str(trial["status"]) for trial in home.trials(archive)]
    assert {"interrupted"} == {*made[:-1]}, said
    assert "ok" == made[-1], again.stdout
