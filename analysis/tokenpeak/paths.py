"""Folders: what the package carries, the working folder, and what is kept for a user.

What the package carries (playbooks, notebooks, templates, examples) has the checkout's layout below `ROOT`: the
checkout itself, or the folder `shipped` of an installed wheel. The **working folder** `HOME` holds a user's
inventories, sweeps, results and site. It is, in this order: the nearest folder from the current one upward that has
`inventory/` and `sweeps/`; `TOKENPEAK_HOME`; the checkout; the current folder. Examples stand in for inventories and
sweeps that it lacks.
"""

import os
from pathlib import Path

_SHIPPED = Path(__file__).resolve().parent / "shipped"
IS_INSTALLED = _SHIPPED.is_dir()
"""Whether this is an installed wheel, not a checkout."""

ROOT = _SHIPPED if IS_INSTALLED else Path(__file__).resolve().parents[2]

PLAYBOOKS = ROOT / "playbooks"
ARCHIVES = ROOT / "analysis" / "archives"
LANDSCAPES = ROOT / "analysis" / "landscapes"
NOTEBOOKS = ROOT / "notebooks"
TEMPLATES = ROOT / "site" / "templates"
STATIC = ROOT / "site" / "static"
CONTENT = ROOT / "site" / "content"
EXAMPLE_INVENTORIES = ROOT / "inventory"
EXAMPLE_SWEEPS = ROOT / "analysis" / "sweeps"


def working_folder(start: Path) -> Path | None:
    """The nearest folder from `start` upward that is a working folder; None without one, or inside the checkout.

    Whether others can change it is asked by `own_place`: one that they can is refused, and not passed over.
    """
    for folder in (start, *start.parents):
        if not IS_INSTALLED and folder == ROOT:
            return None
        if (folder / "inventory").is_dir() and (folder / "sweeps").is_dir():
            return folder
    return None


def _home() -> Path:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # The current folder was removed.
        here = Path("/")
    folder = working_folder(here)
    if folder is not None:
        return folder
    if given := os.environ.get("TOKENPEAK_HOME"):
        return Path(given)
    return here if IS_INSTALLED else ROOT


def _own(folders: tuple[Path, ...], example: Path) -> Path:
    """The first of the folders that is there, else the example's."""
    return next((folder for folder in folders if folder.is_dir()), example)


HOME = _home()
INVENTORIES = _own((HOME / "inventory",), EXAMPLE_INVENTORIES)
SWEEPS = _own((HOME / "analysis" / "sweeps", HOME / "sweeps"), EXAMPLE_SWEEPS)
OWN_NOTEBOOKS = HOME / "notebooks"
SITE_BUILD = HOME / "site" / "build"
RESULTS = HOME / "results"


def state_dir() -> Path:
    """The folder for what survives a working folder: embedded Postgres, probe results, calibration.

    `TOKENPEAK_STATE`, else `$XDG_STATE_HOME/tokenpeak`, else `~/.local/state/tokenpeak`.
    """
    if explicit := os.environ.get("TOKENPEAK_STATE"):
        return Path(explicit)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tokenpeak"


def data_dir() -> Path:
    """The folder for what is built once and shared by working folders: engines and models.

    `$XDG_DATA_HOME/tokenpeak`, else `~/.local/share/tokenpeak`.
    """
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tokenpeak"
