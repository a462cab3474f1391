"""Node action: what the playbooks' actions that run one command on a node have in common, and the node's files.

Imported by them in Ansible's own processes, one for each task.
"""

import hashlib
import json
import resource
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from tokenpeak.node.installation.bundle import PRIVATE_MODE, SCRIPT_MODE, secret_content
from tokenpeak.node.machine.state import DECLARATION, SCRIPT, content_of
from tokenpeak.node.protocol.frame import as_small_object, unframed
from tokenpeak.node.protocol.requests import PutRequest, as_json
from tokenpeak.sweep.ansible.dispatch import end_children

MEMORY_BYTES = 384 << 20
"""Of a task's process beyond what it begins with, and so of what a hostile node prints: an answer has a few MiB."""
TAIL_CHARACTERS = 4000
FLOODED = "it printed more than any answer has"


class NodeAction(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Commands go where and as whom the task does, by the inventory's connection and become plugins."""

    TRANSFERS_FILES = False

    def on_node(self, argv: Sequence[str], given: bytes = b"\n") -> dict[str, Any]:
        """What came of a command: rc, stdout, stderr, `failed`, and `msg` where there is more to say.

        With any input, SSH takes no terminal. Raises AnsibleConnectionFailure where the node is out of reach.
        """
        _bound_memory()
        if self.option(self._connection, "pipelining") is False:
            # Or a local connection gives a command of another user a terminal, and no input.
            self._connection.set_option("pipelining", True)
        try:
            done = self._run(shlex.join(argv), given)
        except MemoryError:
            end_children()
            return {"rc": None, "stdout": "", "stderr": "", "failed": True, "msg": FLOODED}
        except BaseException:
            # A limit of time leaves the process of the connection behind.
            end_children()
            raise
        found = {name: done[name] for name in ("rc", "stdout", "stderr")} | {"failed": done["rc"] != 0}
        if found["failed"]:
            # As of a module: a login shell that runs nothing, or sudo, may be what has printed it.
            found |= {"module_stdout": done["stdout"][-TAIL_CHARACTERS:], "msg": "non-zero return code"}
        if found["rc"] == 127:
            found["msg"] = f"The module interpreter '{argv[0]}' was not found."
        return found

    def _run(self, words: str, given: bytes) -> dict[str, Any]:
        """What Ansible says of the words; a connection that hands no input on has it in a file that goes again."""
        if self._connection.has_pipelining or not given.strip():
            return dict(self._low_level_execute_command(words, in_data=given))
        folder = self._make_tmp_path()
        try:
            path = self._connection._shell.join_path(folder, "input")
            self._transfer_data(path, given)
            self._fixup_perms2((folder, path))
            return dict(self._low_level_execute_command(f"{words} < {shlex.quote(path)}"))
        finally:
            self._remove_tmp_path(folder)

    def option(self, plugin: Any, name: str) -> Any:
        """The value of an option that not every plugin has."""
        try:
            return plugin.get_option(name)
        except KeyError:
            return None


def _bound_memory() -> None:
    """The limit is this process's, and that of a command on this machine: the node script takes it off again."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


LOOK_LIMIT_S = 60
"""For a look: a node that lets one in and then hangs must keep no other waiting."""
_LOOK = """
import hashlib, json, os, sys
found = {}
for name in sys.argv[2:]:
    try:
        path = os.path.join(sys.argv[1], name)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            seen, digest = os.fstat(file.fileno()), hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        found[name] = [digest.hexdigest(), seen.st_mode, seen.st_uid == os.geteuid()]
    except OSError:
        continue
print("\\n" + json.dumps({"files": found}))
"""
"""Prints of each named file of a folder its SHA-256, its mode, and whether it is this user's own."""
_PUT = """
import os, subprocess, sys, tempfile
given = sys.stdin.buffer
size = int(given.readline())
with tempfile.TemporaryDirectory(prefix="tokenpeak-") as folder:
    script = os.path.join(folder, "tokenpeak-node.pyz")
    with open(script, "wb") as file:
        file.write(given.read(size))
    argv = [sys.executable, "-I", script, "put", "--state", sys.argv[1], "--request", "-"]
    done = subprocess.run(argv, input=given.read())
sys.exit(done.returncode)
"""
"""Runs the script that comes on standard input, after its size, with `put` and the rest of the input."""


@dataclass(frozen=True, kw_only=True)
class NodeFiles:
    """What belongs into a node's state folder; without the secret where no controller gives one."""

    script: bytes = field(repr=False)
    declaration: Mapping[str, Any]
    secret_name: str | None = None
    secret_value: str | None = field(default=None, repr=False)

    def look(self, python: str) -> list[str]:
        """The command by which this Python of the node prints how these files are there."""
        return [python, "-I", "-c", _LOOK, self._state_dir, *self._expected()]

    def are_there(self, printed: str) -> bool:
        """Whether the look has printed that each file is there, with this very content and mode, its user's own."""
        found = unframed(printed, "files", as_small_object)
        return found is not None and found["files"] == self._expected()

    def put(self) -> list[str]:
        """The command that puts them there, from `put_input` on its standard input."""
        return [self._python, "-I", "-c", _PUT, self._state_dir]

    def put_input(self) -> bytes:
        """The script after its size, then the node script's request."""
        request = PutRequest(
            declaration=dict(self.declaration), secret=self.secret_name, secret_value=self.secret_value
        )
        return b"%d\n" % len(self.script) + self.script + json.dumps(as_json(request)).encode()

    def install(self) -> list[str]:
        """The command that installs the guard, once they are there."""
        return [self._python, "-I", f"{self._state_dir}/{SCRIPT}", "install", "--state", self._state_dir]

    @property
    def _state_dir(self) -> str:
        return str(self.declaration["state_dir"])

    @property
    def _python(self) -> str:
        return str(self.declaration["python"])

    def _expected(self) -> dict[str, list[object]]:
        files = {SCRIPT: (self.script, SCRIPT_MODE), DECLARATION: (content_of(dict(self.declaration)), PRIVATE_MODE)}
        if self.secret_name is not None and self.secret_value is not None:
            files[self.secret_name] = (secret_content(self.secret_value), PRIVATE_MODE)
        return {
            name: [hashlib.sha256(content).hexdigest(), stat.S_IFREG | mode, True]
            for name, (content, mode) in files.items()
        }
