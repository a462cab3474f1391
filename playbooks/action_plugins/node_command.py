"""Action `node_command`: a command of the node script, with a request on its standard input.

    node_command:
      command: launch
      request: /path/on/the/controller/launch.json   # or the request itself; none where the command takes none

It runs where and as whom its task does, by the inventory's connection and become plugins, and takes no Python module on
the node. The result has the node's `answer`. Where a controller waits for it, a file of `tokenpeak_answers` has what was
printed instead: an answer may hold an engine's whole log, and each callback would copy it.
"""

import json
import os
import tempfile
import time
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure

from tokenpeak.sweep.ansible.dispatch import is_down, printed_answer, step_at_work
from tokenpeak.sweep.ansible.plugins import TAIL_CHARACTERS, NodeAction

CHANGES_NOTHING = ("probe", "status", "describe", "observe")
TAKES_NONE_BY_HAND = ("restore", "uninstall")
"""Typed on a node, these need no request; the guard command always takes one."""


class ActionModule(NodeAction):
    """Fails where the command does, and where production is not as it was asked to be."""

    _VALID_ARGS = frozenset(("command", "request"))

    def run(self, tmp=None, task_vars=None):
        """What came of it: rc, stderr, `ready` of the engine, when it began and ended here, and its answer."""
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        command, host = self._task.args["command"], task_vars["inventory_hostname"]
        options = self._templar.template(task_vars["tokenpeak_node_options"])
        argv = [*self._templar.template(task_vars["tokenpeak_node_argv"]), command, *options]
        if command in TAKES_NONE_BY_HAND and options:
            argv += ["--request", "-"]
        result |= {"tokenpeak_step": command, "cmd": argv}
        address, number = task_vars.get("tokenpeak_dispatch"), (task_vars.get("next") or {}).get("round")
        began = time.time()
        with step_at_work(address, host, command, number, ends_with_controller=False) as said:
            if said.is_ended.is_set():
                return {**result, **said.as_result()}
            try:
                done = self.on_node(argv, self._request())
            except AnsibleConnectionFailure:
                if not said.is_ended.is_set():
                    raise
                done = {"rc": None, "stdout": "", "stderr": "", "failed": True}
        answer = printed_answer(done["stdout"]) or {}
        result |= {name: done[name] for name in ("msg", "module_stdout") if name in done and not answer}
        result |= {
            "rc": done["rc"],
            "stderr": done["stderr"][-TAIL_CHARACTERS:],
            "span_unix_s": [began, time.time()],
            "ready": answer.get("ready") is True,
            "changed": command not in CHANGES_NOTHING and bool(answer.get("changed", True)),
            "failed": done["failed"] or is_down(command, answer),
        }
        if folder := task_vars.get("tokenpeak_answers"):
            result["tokenpeak_answer"] = _kept(folder, done["stdout"])
        elif answer:
            result["answer"] = answer
        else:
            result["stdout"] = done["stdout"][-TAIL_CHARACTERS:]
        return {**result, **said.as_result()}

    def _request(self):
        """The request as it is sent, and an empty line where there is none: with any input, SSH takes no terminal."""
        given = self._task.args.get("request")
        if isinstance(given, str):
            return Path(given).read_bytes()
        return b"\n" if given is None else json.dumps(given).encode()


def _kept(folder, printed):
    """The name of a new file of the folder that has what was printed."""
    descriptor, path = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(printed)
    return os.path.basename(path)
