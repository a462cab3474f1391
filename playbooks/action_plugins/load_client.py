"""Action `load_client`: the load of a trial, by the load client on this machine, from a written job.

    load_client:
      job: /path/on/the/controller/job.json

It ends with the client, or once the controller has it ended.
"""

import subprocess
import sys
import time
from pathlib import Path

from ansible.plugins.action import ActionBase

from tokenpeak import paths
from tokenpeak.sweep.ansible.dispatch import step_at_work

TAIL_CHARACTERS = 4000


class ActionModule(ActionBase):
    """What was measured is in the job's own files; the result says how the client ended."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("job",))

    def run(self, tmp=None, task_vars=None):
        """Status and last words of the client, and when it began and ended."""
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        host = task_vars["inventory_hostname"]
        argv = [str(Path(sys.executable).with_name("tokenpeak")), "load", "--job", self._task.args["job"]]
        result |= {"tokenpeak_step": "load", "cmd": argv}
        address, number = task_vars.get("tokenpeak_dispatch"), (task_vars.get("next") or {}).get("round")
        began = time.time()
        with step_at_work(address, host, "load", number, ends_with_controller=True) as said:
            if said.is_ended.is_set():
                return {**result, **said.as_result()}
            done = subprocess.run(
                argv,
                cwd=paths.HOME,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        result |= {
            "rc": done.returncode,
            "stdout": done.stdout[-TAIL_CHARACTERS:],
            "stderr": done.stderr[-TAIL_CHARACTERS:],
            "span_unix_s": [began, time.time()],
            "changed": True,
            "failed": done.returncode != 0,
        }
        return {**result, **said.as_result()}
