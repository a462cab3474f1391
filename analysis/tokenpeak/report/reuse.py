"""Pages of the former site that are still right: of the same raw files, by the same code and libraries.

What each sweep's pages were made of is noted beside the site (`.build.made.json` beside `build/`), not in it: the site
itself holds nothing that its readers have no use for. Without the note everything is made again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from tokenpeak import paths

LIBRARIES = ("altair", "jinja2", "markdown-it-py", "polars", "vl-convert-python")


def origin(archives: Iterable[Path], options: Iterable[object]) -> str:
    """A digest of what a sweep's pages are made of; raw files are never edited, so size and time stand for them."""
    parts = [code_digest(), *map(str, options)]
    for archive in archives:
        for path in sorted([*archive.glob("*"), *(archive / "trials").glob("[!.]*")]):
            if path.is_file():
                facts = path.stat()
                parts.append(f"{path} {facts.st_size} {facts.st_mtime_ns}")
    return _digest("\n".join(parts).encode())


@lru_cache
def code_digest() -> str:
    """A digest of everything that makes pages."""
    files = [
        *Path(__file__).parents[1].rglob("*.py"),
        *{*paths.NOTEBOOKS.glob("*.ipynb"), *paths.OWN_NOTEBOOKS.glob("*.ipynb")},
        *paths.TEMPLATES.glob("*"),
    ]
    read = [path.read_bytes() for path in sorted(files)]
    return _digest(b"\0".join([*read, *(version(name).encode() for name in LIBRARIES)]))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(site: Path) -> dict[str, str]:
    """The origin of each sweep's pages in the site at `site`; empty where it is not known."""
    try:
        known: dict[str, str] = json.loads(_note(site).read_text())
    except (OSError, ValueError):
        return {}
    return {sweep_id: made for sweep_id, made in known.items() if (site / sweep_id / "index.html").is_file()}


def write(site: Path, origins: dict[str, str]) -> None:
    """Note the origin of each sweep's pages."""
    _note(site).write_text(json.dumps(origins, indent=1) + "\n")


def forget(site: Path) -> None:
    """Remove the note, before the site changes."""
    _note(site).unlink(missing_ok=True)


def _note(site: Path) -> Path:
    return site.with_name(f".{site.name}.made.json")


def take(former: Path, folder: Path) -> None:
    """The pages at `former` under `folder` too, without a second copy where the file system can."""
    shutil.copytree(former, folder, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
