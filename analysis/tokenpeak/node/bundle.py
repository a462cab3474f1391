"""Packing this package into the one file that is put on nodes."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

from tokenpeak.node import root_files
from tokenpeak.node.script import DIGEST

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
    """Write the zipapp to `path`, atomically; the same sources give the same bytes."""
    sources = {**_sources(), f"tokenpeak/node/{DIGEST}": script_digest() + "\n"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    root_files.put(path, b"#!/usr/bin/env python3\n" + buffer.getvalue(), 0o755)
    return path
