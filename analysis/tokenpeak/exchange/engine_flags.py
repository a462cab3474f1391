"""Engine flags that a result file names: only keys that some release of vLLM takes as a flag."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tokenpeak.exchange.reading import Scalar, plain
from tokenpeak.vllm.flag_effects import is_tuning
from tokenpeak.vllm.flags import flag_table, known_flags

UNSAID = "as-run"
"""Name of a config of which a file says nothing."""
SHORTEST = 2
"""Letters of a short name that may stand alone as a key: `tp`, not `n`."""


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """Flags under their names with underscores, and the keys of the file that they are from."""

    flags: Mapping[str, Scalar] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, str]:
        """The flags as choices of axes."""
        return {name.replace(".", "_"): _word(value) for name, value in self.flags.items()}

    @property
    def config(self) -> str:
        """The name of a config of these flags."""
        return ", ".join(f"{axis}={word}" for axis, word in self.choices.items()) or UNSAID


def engine_flags(raw: Mapping[str, Any], keys: Iterable[str], *, tuned_only: bool = False) -> EngineFlags:
    """Those of `keys` that are engine flags, with their values in `raw`; `tuned_only` leaves out such as `seed`."""
    flags: dict[str, Scalar] = {}
    used = []
    for key in keys:
        name = flag_name(key)
        value = raw[key]
        if name is None or (tuned_only and not is_tuning(name.partition(".")[0])):
            continue
        if isinstance(value, dict):
            value = json.dumps(value, sort_keys=True)
        if isinstance(value, bool | int | float | str):
            flags[name] = plain(value) if isinstance(value, str) else value
            used.append(key)
    return EngineFlags(flags=flags, keys=tuple(used))


def flag_name(key: str) -> str | None:
    """The flag that a key names, of which `tp` is short for one too; None where no release has it."""
    name, dot, part = key.lstrip("-").replace("-", "_").partition(".")
    name = _short_names().get(name, name)
    return f"{name}{dot}{part}" if name.removeprefix("no_") in flag_table().flags else None


@cache
def _short_names() -> dict[str, str]:
    names = {short.lstrip("-"): facts.name for facts in known_flags(None).values() for short in facts.short}
    return {short: name for short, name in names.items() if len(short) >= SHORTEST}


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
