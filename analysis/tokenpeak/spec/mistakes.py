"""Mistakes in what a user writes: their lines as `tokenpeak check` prints them, the nearest valid keys, and secrets."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import InputError, TokenpeakError, suggestion
from tokenpeak.sensitive import holds_secret, holds_token, is_secret_setting

LONGEST_GIVEN = 200
"""Characters of a refused value that a complaint quotes; a longer one is left out."""
SETTINGS = frozenset({"env", "flags"})
"""Mappings of a spec whose keys name settings of the engine."""
WORDS = frozenset({"prompt", "description"})
"""Running text, in which the word password is no password; a token of a known form is one."""
INSTEAD = "Put it as NAME=VALUE into a root-only file on the node that the inventory's tokenpeak_engine_env_file names"


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

    def comment(self, *place: object) -> str:
        """The comment in front of a place, as one line; empty where there is none."""
        said: list[str] = []
        for line in reversed(self._lines[: self.line(*place) - 1]):
            if line.strip() and not line.lstrip().startswith("#"):
                break
            said.insert(0, line.strip().lstrip("# "))
        return " ".join(filter(None, said))

    @cached_property
    def _lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8", errors="replace").split("\n")

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


def complaints(error: ValidationError, schema: Mapping[str, Any]) -> list[tuple[tuple[int | str, ...], str]]:
    """Findings of pydantic: the place in the spec, and a line that names key, value and the schema's nearest key."""
    lines: list[tuple[tuple[int | str, ...], str]] = []
    findings = error.errors()
    for finding in findings:
        # An item that fails leaves its list too short; the item's own complaint is the one that helps.
        if finding["type"] == "too_short" and any(
            other is not finding and other["loc"][: len(finding["loc"])] == finding["loc"] for other in findings
        ):
            continue
        where = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            key = str(finding["loc"][-1])
            text = f"{where}: unknown key. {suggestion(key, known_keys(schema, finding['loc'][:-1]))}"
        else:
            given = "" if finding["type"] == "missing" else f" (given: {finding['input']!r})"
            # A rule of a whole part names its value itself; the part would bury that.
            shown = given if len(given) <= LONGEST_GIVEN else ""
            text = f"{where or 'spec'}: {finding['msg'].removeprefix('Value error, ')}{shown}"
        lines.append((finding["loc"], text))
    return lines


def known_keys(schema: Mapping[str, Any], loc: tuple[int | str, ...]) -> list[str]:
    """The keys allowed at a place of the spec, found by walking its JSON Schema."""
    definitions = schema.get("$defs", {})

    def resolve(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if "$ref" in node:
            return resolve(definitions[node["$ref"].rsplit("/", 1)[-1]])
        choices = [node]
        for choice in [*node.get("anyOf", []), *node.get("oneOf", [])]:
            choices += resolve(choice)
        return choices

    nodes = resolve(schema)
    for part in loc:
        following: list[Mapping[str, Any]] = []
        for node in nodes:
            if isinstance(part, int):
                if isinstance(node.get("items"), dict):
                    following += resolve(node["items"])
            elif node.get("properties", {}).get("kind", {}).get("const") == part or _is_level(node, part):
                following.append(node)
            elif part in node.get("properties", {}):
                following += resolve(node["properties"][part])
            elif isinstance(node.get("additionalProperties"), dict):
                following += resolve(node["additionalProperties"])
        nodes = following or nodes
    return sorted({key for node in nodes for key in node.get("properties", {})})


def _is_level(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether this is the schema of that kind of load level: `max_rate` is MaxRateLoad."""
    return str(schema.get("title")).casefold() == f"{kind.replace('_', '')}load"


def secret_in_environment(name: str, env: object) -> str | None:
    """The complaint about a secret in the engine's variables that an inventory sets under `name`; None without."""
    place = next(_places({"env": env}, ()), None) if isinstance(env, Mapping) else None
    return None if place is None else f"{name}{place.removeprefix('env')}: looks like a secret. {INSTEAD}"


def secret_in(spec: Mapping[str, Any]) -> str | None:
    """Which setting of the spec holds a secret and where it belongs instead, without the secret; None when none does.

    What a header takes from an environment variable of the controller's is none.
    """
    place = next(_places(spec, ()), None)
    if place is None:
        return None
    return (
        f"{place}: looks like a secret, and the archive keeps the spec. {INSTEAD}; for a server that is measured as it "
        "is, use endpoint.api_key_env"
    )


def _places(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Dotted places of secrets below `path`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            # An axis is named after the flag that its alternatives set.
            if path and path[-1] in SETTINGS and is_secret_setting(str(key), item):
                yield ".".join((*path, str(key)))
            elif path and path[-1] == "headers":
                continue
            elif holds_secret(str(key)):
                yield ".".join(path) or "spec"
            else:
                yield from _places(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _places(item, (*path, str(index)))
    elif isinstance(value, str) and (holds_token if path and path[-1] in WORDS else holds_secret)(value):
        yield ".".join(path)
