"""Options that several commands have: the inventory, its nodes, and for whom the output is."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tokenpeak.cli import completion

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]


def inventory(words: str, **attributes: Any) -> _Decorator[Any]:
    """`--inventory NAME` as `inventory_name`; `sim` when absent, unless `attributes` say otherwise."""
    given = attributes or {"default": "sim", "show_default": True}
    return click.option("--inventory", "inventory_name", type=completion.INVENTORY, help=words, **given)


NODES = click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
"""`--node NAME …` as `nodes`."""


def style(default: str = "table", words: str = "For people or for machines.") -> _Decorator[Any]:
    """`--format`: `default` or `json`, as `style`."""
    choice = click.Choice([default, "json"])
    return click.option("--format", "style", type=choice, default=default, show_default=True, help=words)
