"""Secrets in a sweep spec, which its archive would keep, and in an inventory: found before anything runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from tokenpeak.sensitive import holds_secret, holds_token, is_secret_setting

SETTINGS = frozenset({"env", "flags"})
"""Mappings of a spec whose keys name settings of the engine."""
WORDS = frozenset({"prompt", "description"})
"""Running text, in which the word password is no password; a token of a known form is one."""

INSTEAD = "Put it as NAME=VALUE into a root-only file on the node that the inventory's tokenpeak_engine_env_file names"


def secret_in_environment(name: str, env: object) -> str | None:
    """The same of the variables that an inventory sets under `name` for the engine, which stand in its git history."""
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
