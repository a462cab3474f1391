"""Plugins of the playbooks: what their strategies have in common, and their actions that run a command on a node.

Imported by them in Ansible's own processes: strategies in the first, actions in one for each task.
"""

import hashlib
import json
import os
import resource
import shlex
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.executor.task_result import _RawTaskResult
from ansible.plugins.action import ActionBase
from ansible.plugins.strategy.free import StrategyModule as FreeStrategy

from tokenpeak.node.bundle import PRIVATE_MODE, SCRIPT_MODE, secret_content
from tokenpeak.node.machine.state import DECLARATION, SCRIPT, content_of
from tokenpeak.node.protocol.frame import as_small_object, unframed
from tokenpeak.node.protocol.requests import PutRequest, as_json
from tokenpeak.sweep.ansible.dispatch import end_children

OWN_ACTIONS = ("next_trial", "note_failure", "node_command", "node_script", "load_client", "survey", "channel")
"""Actions of the playbooks, whose results are made on this machine."""
POLL_S = 0.02
_LOOK_S = 0.2
_WORKER_BYTES = 512 << 20
"""Of memory in a task's process, with what it shares: it holds what a host prints several times over."""
_HOSTS = ("add_host", "add_group")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MEMORY_BYTES = 384 << 20
"""Of a task's process beyond what it begins with, and so of what a hostile node prints: an answer has a few MiB."""
TAIL_CHARACTERS = 4000
FLOODED = "it printed more than any answer has"
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


class NodeStrategy(FreeStrategy):  # type: ignore[misc]  # Ansible has no types
    """Ansible's `free`, in which nothing that happens to one host ends or holds up the others.

    Task processes that die or take too much memory are failures of their own hosts.
    """

    unreachable_fails = False
    """A task of others whose host is out of reach has failed, so that the play goes on with its rescue."""
    _looked_s = 0.0

    def _process_pending_results(self, iterator: Any, one_pass: bool = False, max_passes: int | None = None) -> Any:
        """Results since the last call, which comes between two looks at all hosts."""
        if not one_pass:
            self._await_result(iterator)
        return super()._process_pending_results(iterator, one_pass=one_pass, max_passes=max_passes)

    def _load_included_file(self, *arguments: Any, **options: Any) -> Any:
        """A file that is no list of tasks fails where it is included, and ends no other host's run."""
        try:
            return super()._load_included_file(*arguments, **options)
        except AnsibleParserError as error:
            raise AnsibleError(str(error)) from error

    def _convert_wire_task_result_to_raw(self, result: Any) -> Any:
        """A task that is none of ours changes no inventory."""
        raw = super()._convert_wire_task_result_to_raw(result)
        data = raw._return_data
        if raw.task.action not in OWN_ACTIONS and isinstance(data, dict):
            for one in (data, *filter(_is_object, data.get("results") or ())):
                for key in _HOSTS:
                    one.pop(key, None)
            if self.unreachable_fails and data.pop("unreachable", False):
                data["failed"] = True
        return raw

    def _await_result(self, iterator: Any) -> None:
        """Wait while each host has a task at work: with hundreds of them, a look at all takes its time."""
        hosts = self._at_work(iterator)
        while hosts and not self._tqm._terminated and not self._has_news():
            self._look_at_workers()
            if self._results or not all(map(self._blocked_hosts.get, hosts)):
                return
            time.sleep(POLL_S)

    def _has_news(self) -> bool:
        """Whether there is something to do for a host that waits."""
        return False

    def _at_work(self, iterator: Any) -> list[str]:
        """The hosts for whose tasks the play waits."""
        return [host.name for host in self.get_hosts_left(iterator)]

    def _look_at_workers(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for place, worker in enumerate(self._workers):
            if worker is None:
                continue
            if worker.exitcode:
                self._workers[place] = None
                self._fail(worker)
            elif worker.is_alive() and _resident_bytes(worker.pid) > _WORKER_BYTES:
                worker.kill()

    def _fail(self, worker: Any) -> None:
        """A result in the place of the one that a process will never send, unless it had sent that before its end."""
        host, task = worker._host, worker._task
        words = "its task's process on this machine was ended: the host printed too much, or memory is short here"
        with self._results_lock:
            if self._blocked_hosts.get(host.name) and not any(one.host.name == host.name for one in self._results):
                data = {"failed": True, "msg": words}
                self._results.append(_RawTaskResult(host=host, task=task, return_data=data, task_fields={}))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0  # it has ended


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
        result = {name: done[name] for name in ("rc", "stdout", "stderr")} | {"failed": done["rc"] != 0}
        if result["failed"]:
            # As of a module: a login shell that runs nothing, or sudo, may be what has printed it.
            result |= {"module_stdout": done["stdout"][-TAIL_CHARACTERS:], "msg": "non-zero return code"}
        if result["rc"] == 127:
            result["msg"] = f"The module interpreter '{argv[0]}' was not found."
        return result

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
        answer = unframed(printed, "files", as_small_object)
        return answer is not None and answer["files"] == self._expected()

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
