"""Step: a node command that a playbook's task runs, and what its answer says.

The actions of the playbooks import this in Ansible's own processes: the standard library and what runs on nodes alone.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from tokenpeak.node.protocol.frame import KEY, unframed

Step = Literal[
    "install",
    "probe",
    "launch",
    "load",
    "finish",
    "restore",
    "status",
    "produce",
    "uninstall",
    "describe",
    "observe",
    "change",
    "confirm",
    "survey",
]
"""The node command that is run; `load` runs the load client. A task's result names it as `tokenpeak_step`."""


def printed_answer(printed: str) -> dict[str, Any] | None:
    """The node command's answer in all that was printed; None where there is none."""
    return unframed(printed, KEY, _as_object)


def is_down(step: str, answer: Mapping[str, Any]) -> bool:
    """Whether the node says that production, which the step was to bring up, is not."""
    if step == "produce":
        return answer.get("ready") is False
    return step == "restore" and (answer.get("restoration") or {}).get("restored") is not True


def _as_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
