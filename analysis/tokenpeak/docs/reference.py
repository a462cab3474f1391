"""What the pages of the reference have below their text."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import click
import yaml

from tokenpeak import paths
from tokenpeak.atomic import write_atomically
from tokenpeak.deletion import delete
from tokenpeak.docs.commands import command_tables
from tokenpeak.docs.contents import FOLDER
from tokenpeak.docs.examples import Examples
from tokenpeak.docs.fields import SchemaTables
from tokenpeak.docs.quantities import metric_tables, status_tables
from tokenpeak.docs.tables import ReferenceTable
from tokenpeak.docs.views import frame_tables, view_tables
from tokenpeak.report import reuse
from tokenpeak.sweep.inventory.schemas import inventory_schema, sweep_schema

REFERENCE = FOLDER / "reference"
ARGUMENTS = paths.PLAYBOOKS / "roles" / "guard" / "meta" / "argument_specs.yml"
OF_SCHEMAS = ("reference/sweep", "reference/inventory")
"""Pages whose tables are kept between builds: reading the YAML of all examples takes a third of a second."""
LIBRARIES = ("pydantic", "pyyaml")
"""What those tables are made with beside what makes pages."""


def reference_tables(page: str, commands: click.Group) -> list[ReferenceTable]:
    """The tables of a page of the reference; none for a page without."""
    made: dict[str, Callable[[], list[ReferenceTable]]] = {
        "reference/sweep": sweep_tables,
        "reference/inventory": inventory_tables,
        "reference/commands": lambda: [*command_tables(commands), *status_tables()],
        "reference/sql": view_tables,
        "reference/frames": frame_tables,
        "reference/metrics": metric_tables,
    }
    if page not in OF_SCHEMAS:
        return made[page]() if page in made else []
    kept = _kept(page)
    if kept.is_file():
        return [ReferenceTable.of(each) for each in json.loads(kept.read_text())]
    tables = made[page]()
    kept.parent.mkdir(parents=True, exist_ok=True)
    for former in kept.parent.glob(f"{kept.name.rpartition('-')[0]}-*.json"):
        delete(former)
    write_atomically(kept, json.dumps([asdict(each) for each in tables]))
    return tables


def _kept(page: str) -> Path:
    """Where the tables of a page are kept once made, by all that they are made of: code, libraries and files."""
    files = [*REFERENCE.rglob("*"), *paths.EXAMPLE_SWEEPS.rglob("*"), *paths.EXAMPLE_INVENTORIES.rglob("*"), ARGUMENTS]
    digest = hashlib.sha256(reuse.code_digest().encode())
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"\0{path}\0".encode() + path.read_bytes())
    return paths.state_dir() / "docs-tables" / f"{page.replace('/', '-')}-{digest.hexdigest()[:16]}.json"


def sweep_tables() -> list[ReferenceTable]:
    """Every field of a sweep."""
    schema = sweep_schema()
    files = [*sorted(REFERENCE.glob("sweep*.yml")), *sorted(paths.EXAMPLE_SWEEPS.glob("*.yml"))]
    return SchemaTables(schema, Examples(schema, files), "The file").tables()


def inventory_tables() -> list[ReferenceTable]:
    """Every variable of an inventory."""
    schema = inventory_schema()
    shipped = sorted(paths.EXAMPLE_INVENTORIES.glob("*/group_vars/all.yml"))
    files = [*sorted(REFERENCE.glob("inventory*.yml")), *shipped]
    roles = yaml.safe_load(ARGUMENTS.read_text())
    options = roles["argument_specs"]["main"]["options"]
    required = [name for name, option in options.items() if option.get("required") and name in schema["properties"]]
    return SchemaTables(schema, Examples(schema, files), "Variables", required).tables()
