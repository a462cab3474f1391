"""Which node script this is: a digest of its sources, the same on every machine that packs the same ones."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import marshal
import pkgutil
import zipfile
from functools import lru_cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from tokenpeak.node.machine import root_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import DECLARATION, SCRIPT, Json, State, content_of
from tokenpeak.node.protocol.answers import PutAnswer
from tokenpeak.node.protocol.requests import PutRequest

DIGEST = "digest.txt"
"""The bundle's file that holds it."""


@functools.lru_cache(maxsize=None)
def own_digest() -> str | None:
    """The digest of the bundle that runs; None where the package itself runs.

    It is read once, at the start: a guard or a lease runs on while another script is put in the place of its own.
    """
    try:
        raw = pkgutil.get_data("tokenpeak.node", DIGEST)
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
            "run `tokenpeak install`, as root where the inventory has a tokenpeak_guard_command.",
        )


_UNCHECKED = (1).to_bytes(4, "little")
"""Flags of a `.pyc` that is taken without a look at its source (PEP 552), which other releases of Python read."""
_WITHOUT_REFERENCES = 2
"""The newest marshal format by which equal code gives equal bytes."""
START = 'import sys\n\nfrom tokenpeak.node.__main__ import main\n\nif __name__ == "__main__":\n    sys.exit(main())\n'


def _sources() -> dict[str, str]:
    package = Path(__file__).parent
    sources = {"__main__.py": START, "tokenpeak/__init__.py": ""}
    for source in sorted(package.rglob("*.py")):
        sources[f"tokenpeak/node/{source.relative_to(package).as_posix()}"] = source.read_text()
    return sources


def script_digest() -> str:
    """Which version the bundle is: by its sources alone, for another machine may pack the same ones otherwise."""
    return hashlib.sha256(json.dumps(_sources(), sort_keys=True).encode()).hexdigest()


def write_bundle(path: Path) -> Path:
    """Write the zipapp to `path`, atomically; the same sources give the same bytes by the same release of Python.

    With bytecode a node whose Python is of that release starts a command in a quarter of the time.
    """
    sources = {**_sources(), f"tokenpeak/node/{DIGEST}": script_digest() + "\n"}
    root_files.put(path, _packed(tuple(sources.items())), 0o755)
    return path


@lru_cache(maxsize=1)
def _packed(sources: tuple[tuple[str, str], ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources:
            _add(archive, name, text.encode())
            if name.endswith(".py"):
                _add(archive, f"{name}c", _bytecode(name, text))
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def _bytecode(name: str, text: str) -> bytes:
    code = compile(text, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(text.encode()) + marshal.dumps(code, _WITHOUT_REFERENCES)


SCRIPT_MODE = 0o755
PRIVATE_MODE = 0o600


def put(state: State, request: PutRequest, script: Path) -> PutAnswer:
    """Put `script`, the file that runs, and what the request holds into the state folder; whether anything differed."""
    if not script.is_file():
        raise ScriptError("put", f"{script} is no file: only the packed node script can be put into a state folder.")
    differed = []
    # Under a name of its own: another controller's trial may be under way.
    if request.secret is not None and request.secret_value is not None:
        differed.append(state.put(request.secret, secret_content(request.secret_value), PRIVATE_MODE))
    differed.append(state.put(DECLARATION, content_of(request.declaration), PRIVATE_MODE))
    differed.append(state.put(SCRIPT, script.read_bytes(), SCRIPT_MODE))
    return PutAnswer(changed=any(differed))


def secret_content(value: str) -> bytes:
    """The secret as its file has it."""
    return f"{value}\n".encode()
