"""Step: a node command that a trial or a task of a playbook runs; a task is marked by its variable `tokenpeak_step`."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast, get_args

import yaml

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
]
"""The node command that is run; `load` runs the load client."""

_VARIABLE = "tokenpeak_step"


def step_of(task_path: str) -> Step | None:
    """The mark of the task at `FILE:LINE`, as Ansible's events give its place; None for a task without one.

    Raises ValueError for a mark that is no step.
    """
    file, _, line = task_path.rpartition(":")
    return _steps(file).get(int(line)) if line.isdigit() else None


@functools.cache
def _steps(file: str) -> dict[int, Step]:
    found: dict[int, Step] = {}
    for line, word in _marks(yaml.compose(Path(file).read_text())):
        if word not in get_args(Step):
            raise ValueError(f"{file}:{line}: {_VARIABLE} is {word!r}, not one of {', '.join(get_args(Step))}")
        found[line] = cast(Step, word)
    return found


def _marks(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """The line and the mark of each task below the node."""
    if isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            yield from _marks(entry)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "vars" and isinstance(value, yaml.MappingNode):
                yield from (
                    (node.start_mark.line + 1, word.value) for name, word in value.value if name.value == _VARIABLE
                )
            yield from _marks(value)
