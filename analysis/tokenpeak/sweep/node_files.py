"""Node files: the script, declaration and secret that belong into a node's state folder, and whether they are there.

The role `guard` uses this by its action `node_script`, in Ansible's own processes. So it imports the standard library
and what runs on nodes, and nothing else.
"""

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenpeak.node.protocol.frame import as_small_object, unframed
from tokenpeak.node.protocol.requests import PutRequest, as_json
from tokenpeak.node.put import PRIVATE_MODE, SCRIPT_MODE, secret_content
from tokenpeak.node.state import DECLARATION, SCRIPT, content_of

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
