"""A node in a temporary folder: the real zipapp, real processes, a small server as production and engine."""

import functools
import io
import json
import os
import py_compile
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node import process
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.protocol.answers import parse
from tokenpeak.node.protocol.commands import ANSWERS

STANDIN = Path(__file__).with_name("standin.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Node:
    """A node's state folder and the zipapp in it."""

    folder: Path
    declaration: dict[str, Any]

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
        """Run a command to its end; its answer."""
        out, err = self.start(command, request).communicate(timeout=60)
        assert out, err
        answer = json.loads(out)
        assert isinstance(answer, dict)
        assert () == parse(ANSWERS[command], answer).unusable
        return answer

    def declare(self, **changes: Any) -> None:
        """Change the declaration."""
        self.declaration.update(changes)
        (self.folder / "node.json").write_text(json.dumps(self.declaration))

    def read(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None
        content.pop("checksum", None)
        return dict(content)

    def rewrite(self, name: str, content: Any) -> None:
        """Put this content into a file of the state folder, in place of each copy."""
        (self.folder / name.replace(".json", ".copy.json")).unlink(missing_ok=True)
        (self.folder / name).write_text(json.dumps(content))

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

    def launch_request(self, *options: str, **changes: Any) -> dict[str, Any]:
        """A request that starts a small server as engine."""
        port = self.declaration["port"]
        return {
            "trial_id": "0000-abc",
            "holder": "sweep-1",
            "argv": [sys.executable, str(STANDIN), "serve", "tiny", "--port", str(port), *options],
            "env": {},
            "served_model": "tiny",
            "deadline_s": 10,
            "lease_s": 30,
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
            "production_ready_s": 10,
            **changes,
        }

    def stop_production(self) -> None:
        """End declared production, as its owner would."""
        leader = self.read("production.json")
        if leader:
            process.stop_group(leader, 1.0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with node_in(tmp_path / "state") as made:
        yield made


def end_notifying(folder: Path) -> None:
    """End what still tries to notify somebody for the node of this folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "notify" in words and str(folder) in words:
            os.kill(int(path.parent.name), signal.SIGKILL)


@functools.cache
def _compiled_bundle() -> bytes:
    """The zipapp, and beside each source what this Python compiles it to: its commands start in half the time."""
    with tempfile.TemporaryDirectory() as folder:
        packed = io.BytesIO(write_bundle(Path(folder) / "packed.pyz").read_bytes())
        source, compiled = Path(folder) / "source.py", Path(folder) / "source.pyc"
        with zipfile.ZipFile(packed, "a") as bundle:
            for name in [name for name in bundle.namelist() if name.endswith(".py")]:
                source.write_bytes(bundle.read(name))
                unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(source), str(compiled), name, doraise=True, invalidation_mode=unchecked)
                bundle.write(compiled, f"{name}c")
        return packed.getvalue()


def put_script(path: Path) -> Path:
    """Write the node script there, as a controller does but for what is compiled; the path."""
    path.write_bytes(_compiled_bundle())
    path.chmod(0o755)
    return path


@contextmanager
def node_in(folder: Path) -> Iterator[Node]:
    """A node whose state folder is made there, given back at the end."""
    folder.mkdir(mode=0o700)
    made = Node(folder=folder, declaration={})
    put_script(made.bundle)
    made.declare(
        host="127.0.0.1",
        port=free_port(),
        engine={"command": [sys.executable, "serve"], "isolation": "process"},
        production={"manager": "none"},
        model={"name": "tiny", "served_name": "tiny"},
    )
    yield made
    end_notifying(folder)
    if (folder / "record.json").exists() or (folder / "engine.json").exists():
        made.run("restore")
    made.stop_production()
