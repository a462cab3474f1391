"""Which node script this is: a digest of its sources, the same on every machine that packs the same ones."""

from __future__ import annotations

import functools
import pkgutil

from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import Json

DIGEST = "digest.txt"
"""The bundle's file that holds it."""


@functools.lru_cache(maxsize=None)
def own_digest() -> str | None:
    """The digest of the bundle that runs; None where the package itself runs.

    It is read once, at the start: a guard or a lease runs on while another script is put in the place of its own.
    """
    try:
        raw = pkgutil.get_data(__package__, DIGEST)
    except OSError:
        return None
    return raw.decode().strip() if raw else None


def require_same(request: Json) -> None:
    """Raise ScriptError for a launch by a controller of another version: each would half understand the other."""
    theirs, own = request.get("script"), own_digest()
    if theirs is not None and own is not None and theirs != own:
        raise ScriptError(
            "version",
            f"The node script here is {own[:12]} and the controller's is {str(theirs)[:12]}, so nothing was touched: "
            "run `make install`, as root where the inventory has a tokenpeak_guard_command.",
        )
