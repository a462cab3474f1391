"""Definitions that their manager does not load: whoever gives the node back writes the former one, and starts it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, process
from tokenpeak.node.machine.process import Ran
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.manager import checksum
from tokenpeak.node.production.managers import make_manager, systemd
from tokenpeak.node.production.restore import restore

BAD = "BAD"
"""What a definition holds that its manager does not load."""


class Manager:
    """What a manager answers whose definition is a file: as long as that is bad, it stops and starts nothing."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.running = False
        self.read_last = ""

    @property
    def is_bad(self) -> bool:
        return BAD in self.read_last

    def read(self) -> None:
        self.read_last = self.file.read_text() if self.file.exists() else ""

    def run(self, argv: Sequence[str], *_: object, **__: object) -> Ran:
        words = [word for word in argv[1:] if word != "--"]
        if argv[0] in ("systemctl", "supervisorctl"):
            return getattr(self, argv[0])(words)
        return Ran(127, "", f"{argv[0]}: not there")


class Systemd(Manager):
    def systemctl(self, words: list[str]) -> Ran:
        if words[-1] == "daemon-reload":
            self.read()
        elif words[-1] != "prod.service":
            return Ran(0, "ActiveState=inactive\n", "")
        elif words[0] in ("stop", "start") and self.is_bad:
            verb = "Failed to stop prod.service: Unit prod.service not loaded."
            return Ran(5, "", verb if words[0] == "stop" else "Unit prod.service has a bad unit file setting.")
        elif words[0] in ("stop", "start"):
            self.running = words[0] == "start"
        elif words[0] == "cat":
            return Ran(0, f"# {self.file.parent}/prod.service\n[Service]\nExecStart=/opt/vllm serve prod\n", "")
        elif words[0] == "show":
            shown = {
                "LoadState": "bad-setting" if self.is_bad else "loaded",
                "ActiveState": "active" if self.running else "inactive",
                "FragmentPath": "/etc/systemd/system/prod.service",
                "ExecStart": "{ path=/opt/vllm ; argv[]=/opt/vllm serve prod ; ignore_errors=no ; start_time=[n/a] }",
            }
            return Ran(0, "".join(f"{name}={value}\n" for name, value in shown.items()), "")
        return Ran(0, "", "")


class Supervisord(Manager):
    def supervisorctl(self, words: list[str]) -> Ran:
        if BAD in self.file.read_text():
            return Ran(2, "", "Error: File contains parsing errors")
        verb = words[2]
        if verb in ("stop", "start", "update"):
            self.running = verb != "stop"
        return Ran(0, f"prod  {'RUNNING' if self.running else 'STOPPED'}  pid 7\n" if verb == "status" else "", "")


def of_systemd(place: Path) -> tuple[Manager, dict[str, Any], str]:
    file = place / "prod.service.d" / systemd.DROP_IN
    file.parent.mkdir()
    return Systemd(file), {"manager": "systemd", "unit": "prod.service"}, f"[Service]\n{BAD}=\n"


def of_supervisord(place: Path) -> tuple[Manager, dict[str, Any], str]:
    file = place / "supervisord.conf"
    file.write_text("[program:prod]\ncommand=/opt/vllm serve prod\n")
    return Supervisord(file), {"manager": "supervisord", "unit": "prod", "config": str(file)}, f"{BAD}\n"


@pytest.mark.parametrize("by", ["guard", "restore"])
@pytest.mark.parametrize("kind", [of_systemd, of_supervisord])
def test_definition_that_is_not_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Path], tuple[Manager, dict[str, Any], str]],
    by: str,
) -> None:
    """The former definition is written back though nothing can be stopped by the one that is there; it runs again."""
    manager, declared, bad = kind(tmp_path)
    monkeypatch.setattr(systemd, "SYSTEM", tmp_path)
    monkeypatch.setattr(process, "run", manager.run)
    state = State.make(tmp_path / "state")
    definition = make_manager(declared, state)
    before = manager.file.read_text() if manager.file.exists() else None
    was = definition.describe()
    manager.file.write_text(bad)
    manager.read()
    production = {"manager": declared["manager"], "unit": declared["unit"], "declared": declared, "url": None}
    state.write(
        "record.json",
        {
            "nonce": "n",
            "holder": "apply a-1",
            "boot_id": clock.boot_id(),
            "trial_id": "a-1",
            "production": {**production, "running": True, "model": None, "definition": {}},
            "production_ready_s": 2,
            "engine_stop_s": 1,
            "apply": {"was": was, "was_sha256": checksum(was), "touched": True, "confirmed": False, "undo": False},
        },
    )

    outcome = restore(state, Phases(state), by=by)

    assert outcome.restored, outcome.message
    assert "put_back" == outcome.definition
    assert manager.running
    assert before == (manager.file.read_text() if manager.file.exists() else None)
    assert not state.has("record.json")
