"""Pages of the site, each sweep's a notebook each, a user's too, and the parameters that notebooks declare.

A notebook in the working folder's `notebooks/` that is none of ours is a page of each sweep, after ours. One that
declares the parameter `archives` is one page over all sweeps, in a folder of its own. Its title is the heading that it
begins with, or what its metadata says:

    "tokenpeak": {"title": "Our nights"}

A line of its parameters cell declares one, as papermill reads it too: `price_per_hour: float = 2.5  # USD`.
"""

import ast
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from tokenpeak import bounded, paths
from tokenpeak.errors import ArchiveError, InputError, ReportError
from tokenpeak.paths import shown, slug

_OF_SWEEPS = (
    ("index", "Overview", "What should we run, and how much better is it?"),
    ("ranking", "Ranking", "How do all configs compare?"),
    ("interactions", "Interactions", "Which settings matter, and which act together?"),
    ("load", "Load", "How do speed and waiting change with load?"),
    ("requests", "Requests", "How long do requests wait, and why?"),
    ("energy", "Energy", "What does a million tokens take?"),
    ("hardware", "Hardware", "What do GPUs, parallelism and number formats change?"),
    ("claims", "Checks", "Do the figures support what is said of them?"),
    ("trials", "Trials", "What happened in each launch?"),
)
"""Name, title, which is the menu entry too, and question."""
LONGEST = 200
"""Characters of a title."""
OVER_ALL = "archives"
"""The parameter that makes a user's notebook a page over all sweeps."""
GIVEN = ("archive", "study", OVER_ALL)
"""Parameters that the site gives notebooks itself."""
TAG = "parameters"
"""Of the cell that declares them."""
KINDS: dict[str, tuple[Any, str]] = {
    "int": (int, "a whole number"),
    "float": (FiniteFloat, "a finite number"),
    "bool": (bool, "true or false"),
}
"""What a text becomes by the type that its parameter declares, and how an error names that."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its name in addresses, menu entry, title, question and notebook."""

    name: str
    menu: str
    title: str
    question: str
    notebook: Path | None = None
    """None: the page is of the whole site and has no notebook."""
    own: bool = False
    """A user's: a notebook that fails becomes a page that says so."""
    problem: str = ""
    """What is wrong with its metadata."""

    @property
    def stem(self) -> str:
        """What its files are named after; a user's page over all sweeps is in a folder of that name."""
        return self.name.removesuffix("/index")


SWEEP_PAGES = tuple(
    Page(
        name=name,
        menu=title,
        title=title,
        question=question,
        notebook=paths.NOTEBOOKS / f"{'overview' if name == 'index' else name}.ipynb",
    )
    for name, title, question in _OF_SWEEPS
)
"""Our pages of each sweep, in the order of the menu."""
START = paths.NOTEBOOKS / "start.ipynb"
"""What `make notebook` opens first; it is no page."""
SITE_PAGES: tuple[Page, ...] = (
    Page(name="index", menu="Sweeps", title="TokenPeak", question="What has been measured?"),
    Page(name="compare", menu="Compare", title="Compare", question="What differs between configs, sweeps or dates?"),
    Page(name="methodology", menu="Methodology", title="Methodology", question="How was this measured?"),
)

RESERVED = frozenset({"static", "docs", "feed.atom", "live.html", *(f"{page.name}.html" for page in SITE_PAGES)})
"""What is in the site's own folder beside the sweeps."""


DOCS = Page(name="docs", menu="Docs", title="Documentation", question="How is it used, and what is what?")
LIVE = Page(name="live", menu="Live", title="Live", question="How far is the sweep?")


def pages_of_sweeps() -> tuple[Page, ...]:
    """The pages that each sweep has, in the order of the menu: ours, then the user's."""
    return (*SWEEP_PAGES, *(page for page in _own_pages() if page.stem == page.name))


def pages_of_site() -> tuple[Page, ...]:
    """The pages over all sweeps, in the order of the menu: ours, then the user's."""
    return (*SITE_PAGES, *(page for page in _own_pages() if page.stem != page.name))


def _own_pages() -> list[Page]:
    """A page for each of the user's notebooks."""
    ours = {START.name, *(page.notebook.name for page in SWEEP_PAGES if page.notebook)}
    used = {*RESERVED, *(page.name for page in SWEEP_PAGES)}
    found = []
    for notebook in sorted(paths.OWN_NOTEBOOKS.glob("[!.]*.ipynb")):
        if notebook.name not in ours:
            page = _own(notebook, used)
            used.add(page.name)
            with contextlib.suppress(ReportError):
                if OVER_ALL in declared(notebook):
                    page = replace(page, name=f"{page.name}/index")
            found.append(page)
    return found


def _own(notebook: Path, used: set[str]) -> Page:
    """A user's page, by its notebook's metadata where that can be read."""
    name = slug(notebook.stem) or "page"
    while name in used:
        name = f"own-{name}"
    words = notebook.stem.replace("_", " ").replace("-", " ").strip().capitalize()
    page = Page(name=name, menu=words, title=words, question="", notebook=notebook, own=True)
    try:
        document = json.loads(bounded.read_bytes(notebook))
        given = document.get("metadata", {}).get("tokenpeak", {})
        first = "".join(document["cells"][0]["source"]) if document.get("cells") else ""
        heading = first.partition("\n")[0].removeprefix("# ").strip()[:LONGEST] if first.startswith("# ") else ""
        title = given.get("title", heading or words)
        page = replace(page, title=heading or words)
    except (ArchiveError, OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        return replace(page, problem=f"{notebook.name} is no notebook: {shown(str(error), 200)}")
    if unknown := sorted(given.keys() - {"title"}):
        return replace(page, problem=f"{notebook.name}: metadata.tokenpeak has {shown(unknown[0])}. It may have title.")
    if not isinstance(title, str) or not 1 <= len(title.strip()) <= LONGEST:
        problem = f"metadata.tokenpeak.title is {shown(title)}. It must have 1 to {LONGEST} characters."
        return replace(page, problem=f"{notebook.name}: {problem}")
    return replace(page, menu=given.get("title", words), title=title)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A parameter as its notebook declares it."""

    name: str
    kind: str
    """str, int, float, bool or list; empty where neither a type nor the default says."""
    default: object
    comment: str = ""
    """What the line says after `#`, such as the unit."""

    def value(self, given: object) -> object:
        """The given value, text included, as one of the declared type; InputError where it is none."""
        if not isinstance(given, str) or self.kind not in (*KINDS, "list"):
            return given
        if self.kind == "list":
            return [item.strip() for item in given.split(",")]
        python, words = KINDS[self.kind]
        try:
            return TypeAdapter(python).validate_python(given)
        except ValidationError as error:
            about = f" ({self.comment})" if self.comment else ""
            raise InputError(f"{self.name} is {given!r}. It must be {words}{about}.") from error


def declared(notebook: Path) -> dict[str, Declared]:
    """The parameters that a notebook declares, by name, in its order; none where it has no parameters cell."""
    try:
        return _of_cell(_cell(json.loads(bounded.read_bytes(notebook, error=ReportError))))
    except (ValueError, SyntaxError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ReportError(f"{notebook.name} is no notebook whose parameters can be read: {error}.") from error


def _cell(notebook: Mapping[str, Any]) -> str:
    """The source of the parameters cell."""
    cells = [cell for cell in notebook["cells"] if TAG in cell.get("metadata", {}).get("tags", ())]
    return "".join(cells[0]["source"]) if cells else ""


def _of_cell(source: str) -> dict[str, Declared]:
    lines = source.splitlines()
    found: dict[str, Declared] = {}
    for statement in ast.parse(source).body:
        target: ast.expr
        if isinstance(statement, ast.AnnAssign):
            target, value, kind = statement.target, statement.value, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign):
            target, value, kind = statement.targets[0], statement.value, ""
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        default = None
        if value is not None:
            # What is computed there has no type that could be read here.
            with contextlib.suppress(ValueError):
                default = ast.literal_eval(value)
        # What follows the statement on its last line is its comment, wherever else a # may stand.
        after = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset or 0 :].decode()
        comment = after.partition("#")[2].strip()
        known = re.sub(r"\[.*\]|\s*\|\s*None", "", kind) or (type(default).__name__ if default is not None else "")
        found[target.id] = Declared(name=target.id, kind=known, default=default, comment=comment)
    return found
