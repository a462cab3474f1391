"""A node in a temporary folder: the real zipapp, real processes, a small server as production and engine."""

import atexit
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.free_ports import free_port

from tokenpeak.node.__main__ import answered
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.machine import clock, process, process_files
from tokenpeak.node.machine.process import start_detached
from tokenpeak.node.machine.process_files import command_line
from tokenpeak.node.protocol.answers import parse
from tokenpeak.node.protocol.requests import COMMANDS

STANDIN = Path(__file__).with_name("standin.py")
APPLY_HOLDER = "apply a-1"
SCRIPT_SERVER = Path(__file__).with_name("script_server.py")


@dataclass
class Node:
    """A node's state folder and the zipapp in it."""

    folder: Path
    declaration: dict[str, Any]
    children: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def bundle(self) -> Path:
        return self.folder / "tokenpeak-node.pyz"

    def start(self, command: str, request: dict[str, Any] | None = None) -> "subprocess.Popen[str]":
        """Start a command and leave it running."""
        argv = [sys.executable, "-I", str(self.bundle), command, "--state", str(self.folder), "--request", "-"]
        started = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert started.stdin
        started.stdin.write(json.dumps(request or {}))
        started.stdin.close()
        started.stdin = None
        return started

    def run(self, command: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Carry out a command in this process, as the node script does; its answer as the controller gets it.

        The guard and the sampler that it starts are processes of the script.
        """
        source = self.folder.with_name(f"{self.folder.name}-request.json")
        source.write_text(json.dumps(request or {}))
        with (
            patch.dict(os.environ),
            patch.object(sys, "argv", [str(self.bundle)]),
            patch.object(process, "start_again", start_again),
            patch.object(process, "start_detached", self._start_detached),
        ):
            answer, _ = answered(command, self.folder, str(source))
        return self._checked(command, json.dumps(answer, default=vars))

    def run_script(self, command: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run a command of the script to its end in a process of its own; its answer."""
        out, err = self.start(command, request).communicate(timeout=60)
        assert out, err
        return self._checked(command, out)

    @staticmethod
    def _checked(command: str, printed: str) -> dict[str, Any]:
        """What a command printed, once it is known that the controller can read it."""
        answer = json.loads(printed)
        assert isinstance(answer, dict)
        assert () == parse(COMMANDS[command].answer, answer).unusable
        return answer

    def _start_detached(self, *args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        """As `process.start_detached`, and kept: what outlives a command is this process's own child here."""
        self.children.append(start_detached(*args, **options))
        return self.children[-1]

    def beat(self, monkeypatch: pytest.MonkeyPatch, *holders: str) -> dict[str, Any]:
        """Send a heartbeat of each holder on the lease's channel and close it; the channel's last answer.

        Each heartbeat was answered.
        """
        lines = [json.dumps({"number": number, "holder": holder}) for number, holder in enumerate(holders)]
        said = io.StringIO()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
            patched.setattr(sys, "stdout", said)
            answer = self.run("lease")
        heard = [json.loads(line) for line in said.getvalue().splitlines()]
        assert [*range(len(holders))] == [line["heard"] for line in heard if "heard" in line]
        return answer

    def end_guard(self) -> None:
        """End the guard's process, as a crash does."""
        guard = self.read("guard.json")
        os.kill(guard["pid"], signal.SIGKILL)
        assert clock.wait_until(lambda: not process.is_alive(guard), 60)

    def lapse(self) -> None:
        """Let the lease lapse under a guard that runs here, until no trial has the node."""
        self.end_guard()
        self.fall_silent()
        self.run("guard")
        assert self.read("record.json") is None

    def production_starts_by(self) -> Path:
        """Have the trial's record start production by a script, which nobody may run yet; the script."""
        record = self.read("record.json")
        start = self.folder / "start"
        start.write_text('#!/bin/sh\nexec "$@"\n')
        start.chmod(0o600)
        record["production"]["declared"]["process"]["argv"].insert(0, str(start))
        self.rewrite("record.json", record)
        return start

    def fall_silent(self) -> None:
        """The controller was last heard of before its lease."""
        lease = self.read("lease.json")
        self.rewrite("lease.json", {**lease, "renewed_boot_s": lease["renewed_boot_s"] - 1000})

    def declare(self, **changes: Any) -> None:
        """Change the declaration."""
        self.declaration.update(changes)
        (self.folder / "node.json").write_text(json.dumps(self.declaration))

    def read(self, name: str) -> Any:
        """The object that a file of the state folder holds; None where there is no file."""
        try:
            content = json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None
        content.pop("checksum", None)
        return dict(content)

    def rewrite(self, name: str, content: Any) -> None:
        """Put this content into a file of the state folder, in place of each copy.

        The guard may read at any moment: it finds the old content or the new, and never a part.
        """
        written = self.folder.with_name(f"{self.folder.name}-{name}")
        written.write_text(json.dumps(content))
        written.replace(self.folder / name)
        (self.folder / name.replace(".json", ".copy.json")).unlink(missing_ok=True)

    def production(self, *options: str) -> dict[str, Any]:
        """Declare a small server as production."""
        port = free_port()
        declared = {
            "manager": "command",
            "url": f"http://127.0.0.1:{port}",
            "process": {"argv": [sys.executable, str(STANDIN), "serve", "prod", "--port", str(port), *options]},
        }
        self.declare(production=declared)
        return declared

    def serve(self, *options: str) -> None:
        """Declare a small server as production, and start it."""
        self.production(*options)
        self.run("produce")

    def launch_request(self, *options: str, **changes: Any) -> dict[str, Any]:
        """A request that starts a small server as engine."""
        port = self.declaration["port"]
        return {
            "trial_id": "0000-abc",
            "holder": "sweep-1",
            "argv": [sys.executable, str(STANDIN), "serve", "tiny", "--port", str(port), *options],
            "env": {},
            "served_model": "tiny",
            "deadline_s": 60,
            "lease_s": 300,
            "trial_deadline_s": 600,
            "engine_stop_s": 5,
            **changes,
        }

    def finish_request(self, **changes: Any) -> dict[str, Any]:
        return {
            "trial_id": "0000-abc",
            "holder": "sweep-1",
            "restore_production": True,
            "engine_stop_s": 2,
            "production_ready_s": 60,
            **changes,
        }

    def change_request(self, *words: str, env: dict[str, str | None] | None = None, **changes: Any) -> dict[str, Any]:
        """A change of production's definition that keeps the present words and adds these."""
        found = self.run("describe")
        return {
            "apply_id": "a-1",
            "holder": APPLY_HOLDER,
            "was_sha256": found["sha256"],
            "lease_s": 60,
            "confirm_within_s": 300,
            "production_ready_s": 30,
            "edit": {"words": [*range(len(found["words"])), *words], "env": env or {}, "image": None},
            **changes,
        }

    def confirm(self) -> dict[str, Any]:
        """The answer to the confirmation of such a change."""
        return self.run("confirm", {"apply_id": "a-1", "holder": APPLY_HOLDER})

    def stop_production(self) -> None:
        """End declared production, as its owner would."""
        leader = self.read("production.json")
        if leader:
            process.stop_group(leader, 1.0)


OnPath = Callable[[str, str, str], Path]


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnPath:
    """Puts a recorded command, a script of Python, on the PATH with its initial state, which lies in `NAME.state`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, script: str, state: str) -> Path:
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        Path(f"{program}.state").write_text(state)
        return program

    return put


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with node_in(tmp_path / "state") as made:
        yield made


def end_notifying(folder: Path) -> None:
    """End what still tries to notify somebody for the node of this folder."""
    for pid in process_files.pids():
        words = command_line(pid)
        if "notify" in words and str(folder) in words:
            os.kill(pid, signal.SIGKILL)


class ScriptProcess:
    """A process that runs the node script; `poll` and `wait` as those of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """None while it lives; nobody learns its status."""
        return None if process_files.stat_of(self.pid) else 0


@functools.cache
def _script_server() -> "subprocess.Popen[str]":
    """What forks node scripts for this worker, from the bundle; it ends with this process, whose pipe it reads."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder) / "tokenpeak-node.pyz")
        argv = [sys.executable, "-I", str(SCRIPT_SERVER), str(bundle)]
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert server.stdout
        assert "ready\n" == server.stdout.readline()
    atexit.register(server.terminate)
    return server


def start_again(words: Sequence[str], log: Path) -> ScriptProcess:
    """As `process.start_again`, by a process that has the script loaded."""
    server = _script_server()
    assert server.stdin and server.stdout
    asked = {"script": sys.argv[0], "words": list(words), "log": str(log), "env": dict(os.environ)}
    server.stdin.write(json.dumps(asked) + "\n")
    return ScriptProcess(int(server.stdout.readline()))


@contextmanager
def node_in(folder: Path) -> Iterator[Node]:
    """A node whose state folder is made there, given back at the end."""
    folder.mkdir(mode=0o700)
    made = Node(folder=folder, declaration={})
    write_bundle(made.bundle)
    made.declare(
        host="127.0.0.1",
        port=free_port(),
        engine={"command": [sys.executable, "serve"], "isolation": "process"},
        production={"manager": "none"},
        model={"name": "tiny", "served_name": "tiny"},
    )
    yield made
    if "notify" in made.declaration:
        end_notifying(folder)
    if (folder / "record.json").exists() or (folder / "engine.json").exists():
        made.run("restore")
    made.stop_production()
    for child in made.children:
        child.wait(10)
