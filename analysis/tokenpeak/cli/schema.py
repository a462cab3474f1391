"""`tokenpeak schema`: the JSON Schemas of what a user writes, for editors."""

import json

import click

from tokenpeak.terminal import echo_text


@click.command(short_help="Print the JSON Schema of a kind of file.")
@click.argument("kind", type=click.Choice(["sweep", "inventory", "workload"]), help="Which kind of file.")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file: a sweep, an inventory's variables, or a workload.

    Examples name theirs in their first line, where editors with a YAML language server find it.
    """
    from tokenpeak.spec import schema
    from tokenpeak.sweep.inventory.schemas import inventory_schema, sweep_schema

    found = {"sweep": sweep_schema, "inventory": inventory_schema, "workload": schema.schema}[kind]()
    echo_text(json.dumps(found, indent=1, ensure_ascii=False))
