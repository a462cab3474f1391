"""Where the project's files are.

The checkout is the product: playbooks, inventories, notebooks and templates are read from it, results and
the built site are written into it. `TOKENPEAK_HOME` points elsewhere.
"""

import os
from pathlib import Path

ROOT = Path(os.environ.get("TOKENPEAK_HOME") or Path(__file__).resolve().parents[2])

PLAYBOOKS = ROOT / "playbooks"
INVENTORIES = ROOT / "inventory"
SWEEPS = ROOT / "analysis" / "sweeps"
ARCHIVES = ROOT / "analysis" / "archives"
NOTEBOOKS = ROOT / "notebooks"
TEMPLATES = ROOT / "site" / "templates"
STATIC = ROOT / "site" / "static"
CONTENT = ROOT / "site" / "content"
SITE_BUILD = ROOT / "site" / "build"
RESULTS = ROOT / "results"


def state_dir() -> Path:
    """The folder for what survives a checkout: embedded Postgres, probe results, calibration.

    `TOKENPEAK_STATE`, else `$XDG_STATE_HOME/tokenpeak`, else `~/.local/state/tokenpeak`.
    """
    if explicit := os.environ.get("TOKENPEAK_STATE"):
        return Path(explicit)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tokenpeak"


def data_dir() -> Path:
    """The folder for what is built once and shared by checkouts: engines and models.

    `$XDG_DATA_HOME/tokenpeak`, else `~/.local/share/tokenpeak`.
    """
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tokenpeak"
