"""Action `channel`: the command of this machine by which the inventory's connection would run one on its host.

    channel:
      words: [/usr/bin/python3, -m, tokenpeak.loadgen.workers.remote]

A connection plugin runs a command to its end. What is spoken with meanwhile, a lease or a load host, the controller
starts itself, by the very words with which the plugin would: its result has them as `argv`.
"""

import shlex
import subprocess
from pathlib import Path

from ansible.module_utils.common.text.converters import to_text

from tokenpeak.sweep.ansible.plugins import NodeAction

NO_PASSWORD = "nobody types a password into a connection that is kept open: use a key, and let {} ask for none"


class _TakenError(BaseException):
    """The plugin was about to start this; past whatever it catches."""

    def __init__(self, argv):
        super().__init__()
        self.argv = argv


class ActionModule(NodeAction):
    """Runs nothing on the host."""

    _VALID_ARGS = frozenset(("words",))

    def run(self, tmp=None, task_vars=None):
        """The argv; failed where the connection takes a password, or starts no process here."""
        result = super().run(tmp, task_vars)
        connection, become = self._connection, self._connection.become
        if self.option(connection, "password") or (become and self.option(become, "become_pass")):
            return {**result, "failed": True, "msg": NO_PASSWORD.format(become.name if become else "it")}
        words = shlex.join(self._task.args["words"])
        former = subprocess.Popen

        def take(args, *rest, shell=False, executable=None, **options):
            started = [executable or "/bin/sh", "-c", args] if shell else list(args)
            started = [to_text(word) for word in started]
            if len(started[-1]) < len(words):
                return former(args, *rest, shell=shell, executable=executable, **options)  # a look of the plugin's own
            raise _TakenError(started)

        connection._connect()
        subprocess.Popen = take
        try:
            self._low_level_execute_command(words, in_data=b"\n")
        except _TakenError as taken:
            return {**result, "argv": _kept_open(taken.argv)}
        finally:
            subprocess.Popen = former
        msg = f"the connection {connection.transport} starts no process here that could be kept open"
        return {**result, "failed": True, "msg": msg}


def _kept_open(argv):
    """The words for a connection of its own, whose input stays open.

    SSH would end with the connection that tasks share, and is to lend the host nothing; of its options it keeps the
    first, and the last of -a and -A. Podman's plugin hands no input on.
    """
    program = Path(argv[0]).name
    if program == "ssh":
        own = ["-S", "none", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
        return [argv[0], *own, *argv[1:-2], "-a", "-x", *argv[-2:]]
    if program == "podman" and "exec" in argv:
        at = argv.index("exec") + 1
        return [*argv[:at], "--interactive", *argv[at:]]
    return argv
