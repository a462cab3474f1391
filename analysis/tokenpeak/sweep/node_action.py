"""Node action: what the playbooks' actions that run one command on a node have in common.

Imported by them in Ansible's own processes, one for each task.
"""

import resource
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from tokenpeak.sweep.dispatch import end_children

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
