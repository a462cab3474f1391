"""Mistakes in YAML files with their line numbers, as `tokenpeak check` prints them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tokenpeak import bounded
from tokenpeak.errors import InputError, TokenpeakError


@dataclass(frozen=True, kw_only=True, order=True)
class Mistake:
    """A mistake in a line of a file, with its correction."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class _Plain(yaml.SafeLoader):
    """YAML as plain values; a value of an unknown tag, such as Ansible's `!vault`, is its text."""

    def unknown(self, _: str, node: yaml.Node) -> Any:
        """The text of a value of any other tag."""
        return str(node.value)


_Plain.add_multi_constructor("!", _Plain.unknown)


class LocatedYaml:
    """A YAML file as values whose lines are known."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises InputError where it is no YAML."""
        self.path = path
        self.root = bounded.read_yaml_node(path, error=InputError)

    def values(self) -> Any:
        """The file as plain values; raises InputError where one of them is none, such as a 99th of a month."""
        with bounded.yaml_errors(self.path, InputError):
            return None if self.root is None else _Plain("").construct_document(self.root)

    def mistake(self, text: str, *place: object) -> Mistake:
        """A mistake in the line of that place."""
        return Mistake(path=self.path, line=self.line(*place), text=text)

    def line(self, *place: object) -> int:
        """The line of the key or item at a place, from 1; of a part of it where the rest is not there.

        A part that is no key there is skipped: pydantic names the kind of a load level, which nobody writes.
        """
        node, line = self.root, 1
        for part in place:
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                        node, line = value, key.start_mark.line + 1
                        break
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
        return line


def unreadable(path: Path, error: TokenpeakError) -> Iterator[Mistake]:
    """The one mistake of a file that is no YAML, in its line where the YAML library knows it."""
    reason = error.__cause__
    mark = (reason.problem_mark or reason.context_mark) if isinstance(reason, yaml.MarkedYAMLError) else None
    text = re.sub(r"^is not YAML: (line \d+, column \d+: )?", "", str(error).removeprefix(f"{path} "))
    yield Mistake(path=path, line=mark.line + 1 if mark else 1, text=text)
