"""What the pages of the reference have below their text."""

from collections.abc import Callable

import click
import yaml

from tokenpeak import paths
from tokenpeak.docs.commands import command_tables
from tokenpeak.docs.contents import FOLDER
from tokenpeak.docs.examples import Examples
from tokenpeak.docs.fields import SchemaTables
from tokenpeak.docs.quantities import metric_tables, status_tables
from tokenpeak.docs.tables import ReferenceTable
from tokenpeak.docs.views import frame_tables, view_tables
from tokenpeak.sweep.schemas import inventory_schema, sweep_schema

REFERENCE = FOLDER / "reference"


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
    return made[page]() if page in made else []


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
    roles = yaml.safe_load((paths.PLAYBOOKS / "roles" / "guard" / "meta" / "argument_specs.yml").read_text())
    options = roles["argument_specs"]["main"]["options"]
    required = [name for name, option in options.items() if option.get("required") and name in schema["properties"]]
    return SchemaTables(schema, Examples(schema, files), "Variables", required).tables()
