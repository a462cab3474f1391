"""Action `node_script`: script, declaration and secret into the node's state folder, where they are not, and `install`.

    node_script:
      script: the packed node script here
      declaration: what the inventory declares of the node
      secret_name: the secret's name on the node
      secret_file: a file here that holds the secret

One task in place of five: each task costs the controller a tenth of a second of processor time for each node. All that
is sent goes to the standard input of a command on the node, so that no argument, event or log holds the secret.
"""

import json
import signal
from pathlib import Path

from tokenpeak.node.protocol.frame import KEY, as_small_object, unframed
from tokenpeak.sweep.ansible.plugins import LOOK_LIMIT_S, NodeAction, NodeFiles

DEFAULT_PYTHON = "/usr/bin/python3"


class LateError(BaseException):
    """It did not; past whatever Ansible takes for a lost connection."""


class ActionModule(NodeAction):
    """One look where all of it is there already; a node that hangs then fails after a minute."""

    _VALID_ARGS = frozenset(("script", "declaration", "secret_name", "secret_file"))

    def run(self, tmp=None, task_vars=None):
        """The last command's status and output, and whether anything was changed."""
        result = super().run(tmp, task_vars) | {"tokenpeak_step": "install"}
        files = self._files()
        interpreter = str((task_vars or {}).get("ansible_python_interpreter") or "")
        # The Python of Ansible's own modules: playbooks that give nodes back need it.
        looker = interpreter if interpreter.startswith("/") else DEFAULT_PYTHON
        try:
            looked = self._in_time(files.look(looker))
        except LateError:
            period = {"period": LOOK_LIMIT_S}
            return {**result, "failed": True, "msg": f"Timed out after {LOOK_LIMIT_S} second(s).", "timedout": period}
        if looked["rc"] != 0:
            return {**result, **looked}
        is_changed = False
        if not files.are_there(looked["stdout"]):
            done = self.on_node(files.put(), files.put_input())
            if done["rc"] != 0:
                return {**result, **done}
            is_changed = _says_changed(done)
        done = self.on_node(files.install())
        return {**result, **done, "changed": is_changed or _says_changed(done)}

    def _files(self):
        """What belongs onto the node, by the task's arguments."""
        given = self._task.args
        secret_file = given.get("secret_file")
        return NodeFiles(
            script=Path(given["script"]).read_bytes(),
            declaration=json.loads(given["declaration"]),
            secret_name=given.get("secret_name") if secret_file else None,
            secret_value=Path(secret_file).read_text().strip() if secret_file else None,
        )

    def _in_time(self, argv):
        """What came of a command that must end soon; raises LateError."""

        def end(*_):
            raise LateError

        former = signal.signal(signal.SIGALRM, end)
        signal.alarm(LOOK_LIMIT_S)
        try:
            return self.on_node(argv)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, former)


def _says_changed(done):
    """Whether the node command's answer says that it changed anything."""
    return bool((unframed(done["stdout"], KEY, as_small_object) or {}).get("changed"))
