"""Flag table: which server flags and environment variables each vLLM release takes.

The table data/flags.json is made from each release's own source by `python -m engine_table`. Where the engine is
installed, its `--help=all` is the authority: `parse_help` reads it, and what it says goes before the table.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenpeak.errors import FactsError

DEFAULT_RELEASE = "0.32.0"
"""Release of the simulated engine, and of a prediction without a node, where none is given."""

TABLE = Path(__file__).parent / "data" / "flags.json"

_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)")
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HELP_FLAG = re.compile(r"^  (?:-\w+(?: [^,]+)?, )*(--[a-z].*)$")
_HELP_WORD = re.compile(r"--([a-z][\w.-]*)")


@dataclass(frozen=True, kw_only=True)
class FlagFacts:
    """A flag of one release, under its name with underscores.

    `kind` is how it is written: switch (`--x`), bool (`--x`, `--no-x`), bool_value (`--x=False`), bool_or_str, int,
    float, size (`32k` too), size_or_auto, str, json, list (`--x a b`), append (`--x a --x b`), or value where only
    the help was read.
    """

    name: str
    kind: str
    default: object = None
    choices: tuple[object, ...] = ()
    deprecated: bool = False
    short: tuple[str, ...] = ()
    """Names of one dash, such as `-tp`."""


@dataclass(frozen=True, kw_only=True)
class MethodFacts:
    """A quantization method of one release. `capability` is the least that it runs on, 75 for 7.5; None: not known."""

    capability: int | None
    dtypes: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class FlagTable:
    """The table as it is stored: for each name the stretches of releases in which its facts are the same."""

    releases: tuple[str, ...]
    flags: Mapping[str, list[tuple[int, int, Mapping[str, Any]]]]
    variables: Mapping[str, list[tuple[int, int, object]]]
    quantization: Mapping[str, list[tuple[int, int, Mapping[str, Any]]]]

    def index(self, engine_version: str | None) -> int:
        """The place of the release that stands for a version: the same minor one, else the last before it."""
        if engine_version is None:
            return len(self.releases) - 1
        wanted = minor(engine_version)
        older = [index for index, release in enumerate(self.releases) if minor(release) <= wanted]
        return older[-1] if older else 0

    def lifetime(self, name: str) -> tuple[str, str] | None:
        """The first and the last release with a flag or variable; None when no release has it."""
        spans = self.flags.get(name) or self.variables.get(name)
        return (self.releases[spans[0][0]], self.releases[spans[-1][1]]) if spans else None


def minor(version: str) -> tuple[int, int]:
    """Major and minor number of a version such as `0.8.5.post1` or `0.32.0+cpu`; raises FactsError for another word."""
    match = _RELEASE.match(version)
    if match is None:
        raise FactsError(f"{version!r} is no vLLM version. Write it like 0.32.0.")
    return int(match[1]), int(match[2])


def size(text: str) -> int | None:
    """A number as vLLM reads it: `8192`, `8k` (8,000), `8K` (8,192); None for another word."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS.get(match[2], 1)) if match else None


def json_value(text: str) -> Any:
    """The value of a flag's JSON text; None where it is none, or nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@cache
def flag_table() -> FlagTable:
    """The table, read once."""
    raw = json.loads(TABLE.read_text())
    return FlagTable(
        releases=tuple(raw["releases"]),
        flags=raw["flags"],
        variables=raw["variables"],
        quantization=raw["quantization"],
    )


def newest_release() -> str:
    """The newest release of vLLM that the table has: what an engine of unknown version is taken for."""
    return flag_table().releases[-1]


@cache
def known_flags(engine_version: str | None) -> Mapping[str, FlagFacts]:
    """Name → facts of the flags that a version takes; None: the newest release of the table."""
    table = flag_table()
    index = table.index(engine_version)
    flags: dict[str, FlagFacts] = {}
    for name, spans in table.flags.items():
        for first, last, facts in spans:
            if first <= index <= last:
                choices = facts.get("choices")
                flags[name] = FlagFacts(
                    name=name,
                    kind=str(facts["kind"]),
                    default=facts.get("default"),
                    choices=tuple(choices) if isinstance(choices, list) else (),
                    deprecated=bool(facts.get("deprecated")),
                    short=tuple(facts.get("short", ())),
                )
    return flags


@cache
def known_variables(engine_version: str | None) -> Mapping[str, object]:
    """Name → default of the environment variables that a version reads; a default of None: it has none."""
    table = flag_table()
    index = table.index(engine_version)
    return {
        name: default
        for name, spans in table.variables.items()
        for first, last, default in spans
        if first <= index <= last
    }


@cache
def known_methods(engine_version: str | None) -> Mapping[str, MethodFacts]:
    """Quantization method → facts, of a version."""
    table = flag_table()
    index = table.index(engine_version)
    return {
        name: MethodFacts(
            capability=facts["capability"], dtypes=tuple(facts["dtypes"]) if facts["dtypes"] is not None else None
        )
        for name, spans in table.quantization.items()
        for first, last, facts in spans
        if first <= index <= last
    }


def parse_help(text: str, engine_version: str | None) -> Mapping[str, FlagFacts]:
    """Name → facts of the flags in the output of `vllm serve --help=all` (`--help` before 0.9).

    The help decides which flags there are, which of them have a `--no-`, and their choices; what it does not say,
    such as whether a value is a number, comes from the table of that version.
    """
    table = known_flags(engine_version)
    flags: dict[str, FlagFacts] = {}
    for line in text.splitlines():
        if not (header := _HELP_FLAG.match(line)):
            continue
        usage = re.split(r"\s{2,}", header[1])[0]
        names = [word.replace("-", "_") for word in _HELP_WORD.findall(re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", usage))]
        for name in names:
            if name == "help" or (name.startswith("no_") and name[3:] in names):
                continue
            facts = table.get(name, FlagFacts(name=name, kind="value"))
            kind = _help_kind(name, names, usage)
            fits = facts.kind in _SAME_FORM.get(kind, (kind,))
            flags[name] = replace(facts, kind=facts.kind if fits else kind, choices=_help_choices(usage))
    return flags


@cache
def installed_flags(
    engine_help: tuple[str, ...], installed_version: str | None, wanted_version: str | None
) -> Mapping[str, FlagFacts] | None:
    """Name → facts by an installed engine's own help lines; None where the table is to be asked.

    That is where there is no help, or where a spec wants the words of another release than the installed one.
    """
    if not engine_help or wanted_version != installed_version:
        return None
    return parse_help("\n".join(engine_help), installed_version) or None


_SAME_FORM = {
    "value": ("int", "float", "size", "size_or_auto", "str", "json", "append", "value"),
    "bool_or_str": ("bool_or_str", "bool_value"),
}
"""Kinds that the help prints alike."""


def _help_kind(name: str, names: list[str], usage: str) -> str:
    if f"no_{name}" in names:
        return "bool"
    if re.search(r" [\[\w{].*\[[\w{].* \.\.\.\]$", usage):
        return "list"
    if re.search(r" \[[A-Z_]+\]$", usage):
        return "bool_or_str"
    return "value" if re.search(r"--\S+ \S", usage.split(", ")[0]) else "switch"


def _help_choices(usage: str) -> tuple[object, ...]:
    match = re.search(r" \{([^}]*)\}", usage)
    return tuple(choice for choice in match[1].split(",") if choice != "None") if match else ()
