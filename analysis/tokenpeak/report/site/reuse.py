"""Pages of the former site that are still right: of the same raw files, by the same code and libraries.

What each sweep's pages were made of is noted beside the site (`.build.made.json` beside `build/`), not in it: the site
itself holds nothing that its readers have no use for. Without the note everything is made again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from tokenpeak import paths
from tokenpeak.files import delete, write_atomically
from tokenpeak.report.site.front_pages import FrontRow

LIBRARIES = ("altair", "jinja2", "markdown-it-py", "polars", "tokenpeak", "vl-convert-python")


def origin(archives: Iterable[Path], options: Iterable[object]) -> str:
    """A digest of what a sweep's pages are made of; raw files are never edited, so size and time stand for them."""
    parts = [code_digest(), *map(str, options)]
    for folder in (folder for archive in archives for folder in (archive, archive / "trials", archive / "applies")):
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
        for entry in sorted(files, key=lambda entry: entry.name):
            facts = entry.stat()
            parts.append(f"{entry.path} {facts.st_size} {facts.st_mtime_ns}")
    return _digest("\n".join(parts).encode())


@lru_cache
def code_digest() -> str:
    """A digest of everything that makes pages."""
    files = [
        *Path(__file__).parents[2].rglob("*.py"),
        *{*paths.NOTEBOOKS.glob("*.ipynb"), *paths.OWN_NOTEBOOKS.glob("*.ipynb")},
        *paths.TEMPLATES.glob("*"),
    ]
    # A folder or a dangling link that is named like a notebook has a page that says so, and no content.
    read = [path.read_bytes() for path in sorted(files) if path.is_file()]
    return _digest(b"\0".join([*read, *(version(name).encode() for name in LIBRARIES)]))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Made:
    """A sweep of a site: what its pages are made of, and its row for the pages over all sweeps."""

    origin: str
    row: FrontRow


def read(site: Path) -> dict[str, Made]:
    """The sweeps of the site at `site`; empty where that is not known."""
    try:
        known = json.loads(note(site).read_text())
        made = {sweep_id: Made(origin=each["origin"], row=each["row"]) for sweep_id, each in known.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return {sweep_id: each for sweep_id, each in made.items() if (site / sweep_id / "index.html").is_file()}


def write(site: Path, sweeps: Mapping[str, Made]) -> None:
    """Note what each sweep's pages are made of."""
    noted = {sweep_id: {"origin": made.origin, "row": made.row} for sweep_id, made in sweeps.items()}
    write_atomically(note(site), json.dumps(noted) + "\n", durable=False)


def forget(site: Path) -> None:
    """Remove the note, before the site changes."""
    delete(note(site))


def note(site: Path) -> Path:
    """Where it is noted what a site's sweeps are made of."""
    return site.with_name(f".{site.name}.made.json")
