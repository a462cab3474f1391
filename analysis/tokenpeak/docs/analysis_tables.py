"""Tables of the analysis: what a notebook imports, read off signatures and docstrings, with the examples in them."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tokenpeak.docs.reference_tables import Entry, ReferenceTable, row
from tokenpeak.report import SweepView, enable_charts, figure, interactions, open_archive, open_archives, rank
from tokenpeak.report.config_energy import energy_configs
from tokenpeak.report.load.rates import highest_rates, open_runs
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.site.pages import OVER_ALL, TAG
from tokenpeak.spec.parameters import UNITS

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    open_archive,
    open_archives,
    rank,
    interactions.effects,
    interactions.beyond,
    open_runs,
    highest_rates,
    energy_configs,
    figure,
    enable_charts,
)
"""In the order of the page."""
CLASSES = (SweepView, Ranking)
"""Whose attributes have a table each."""
_SHORT = (open_archive, open_archives, rank, figure, enable_charts)
"""Those that the package itself names."""


def analysis_tables() -> list[ReferenceTable]:
    """A section for each function, a table for each class, and the parameters."""
    return [*map(_function, FUNCTIONS), *map(_class, CLASSES), _parameters()]


def example_of(documented: object) -> str:
    """The example in its docstring, as a prompt shows it; empty where it has none."""
    _, sign, example = (inspect.getdoc(documented) or "").partition(">>> ")
    return f"{sign}{example}".partition("\n\n")[0].strip()


def members(documented: type) -> Iterator[tuple[str, Any]]:
    """The properties and methods of a class that show an example, in order: the others are for our own pages."""
    for name, member in vars(documented).items():
        if not name.startswith("_") and (isinstance(member, property) or callable(member)) and example_of(member):
            yield name, member


def _words(documented: object) -> str:
    """A docstring's paragraphs without its example."""
    return (inspect.getdoc(documented) or "").partition(">>> ")[0].strip()


def _signature(function: Callable[..., Any]) -> str:
    """How it is called: its names and defaults, without types."""
    given = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in given.parameters.values()]
    return str(inspect.Signature(plain))


def _function(function: Callable[..., Any]) -> ReferenceTable:
    place = "tokenpeak.report" if function in _SHORT else function.__module__
    call = f"from {place} import {function.__name__}\n\n{function.__name__}{_signature(function)}"
    parts = (f"```python\n{call}\n```", _words(function), f"```python\n{example_of(function)}\n```")
    return ReferenceTable(title=f"`{function.__name__}`", says="\n\n".join(parts))


def _class(documented: type) -> ReferenceTable:
    return ReferenceTable(
        title=f"`{documented.__name__}`",
        says=_words(documented),
        heads=("Attribute", "Is", "Example"),
        entries=tuple(_attribute(name, member) for name, member in members(documented)),
    )


def _attribute(name: str, member: Any) -> Entry:
    call = "" if isinstance(member, property) else _signature(member).replace("self, ", "").replace("self", "")
    example = "  \n".join(f"`{line}`" for line in example_of(member).splitlines())
    return row(f"{name}{call}", " ".join(_words(member).split()), example)


def _parameters() -> ReferenceTable:
    own = (
        ("archive", "", "A folder, a packed archive or `postgres:SWEEP_ID`; the site gives each sweep's"),
        (OVER_ALL, "", "A list of them; a notebook that declares it is one page of the site, over all sweeps"),
        ("study", "", "The other sweeps of the same study; the site gives them"),
    )
    asked = ((name, unit, "As `open_archive` takes it") for name, unit in UNITS.items())
    return ReferenceTable(
        title="Parameters of a notebook",
        says=f"The code cell with the tag `{TAG}` declares them, a line each: `price: float = 2.5  # USD per hour`. "
        "`tokenpeak report --param NAME=VALUE` gives each notebook those that it declares.",
        heads=("Parameter", "Unit", "Is"),
        entries=tuple(row(name, unit or "–", words) for name, unit, words in (*own, *asked)),
    )
