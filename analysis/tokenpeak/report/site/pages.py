"""Pages of the site, each sweep's a notebook each, a user's too, and the parameters that notebooks declare.

A notebook in the working folder's `notebooks/` that is none of ours is a page of each sweep. Its metadata may say how:

    "tokenpeak": {"title": "Our nights", "menu": "Nights", "order": 45, "question": "What runs at night?"}

A line of its parameters cell declares one, as papermill reads it too, with the rest in its comment:

    price_per_hour: float = 2.5  # USD per node-hour, > 0
    window: str = "night"  # one of: night, weekend
"""

import ast
import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenpeak import bounded, paths
from tokenpeak.errors import ArchiveError, InputError, ReportError, suggestion
from tokenpeak.paths import shown, slug

LIMIT_S = 600
"""Of a user's notebook, unless its metadata says otherwise; ours take some seconds."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its name in addresses, menu entry, title, question and notebook."""

    name: str
    menu: str
    title: str
    question: str
    notebook: Path | None = None
    """None: the page is of the whole site and has no notebook."""
    order: int = 0
    """Its place in the menu; ours are at 10, 20 and so on."""
    own: bool = False
    """A user's: a notebook that fails becomes a page that says so."""
    problem: str = ""
    """What is wrong with its metadata."""
    limit_s: int = LIMIT_S
    """Of a user's notebook: how long it may run."""


_OURS: tuple[Page, ...] = (
    Page(name="index", menu="Overview", title="What to run", question="What should we run, and how much better is it?"),
    Page(name="ranking", menu="Ranking", title="Ranking", question="How do all configs compare?"),
    Page(
        name="interactions",
        menu="Interactions",
        title="Interactions",
        question="Which settings matter, and which act together?",
    ),
    Page(
        name="load",
        menu="Load",
        title="Curves over load",
        question="How do speed and waiting change with load?",
    ),
    Page(name="requests", menu="Requests", title="Requests", question="How long do requests wait, and why?"),
    Page(
        name="energy", menu="Energy", title="Energy, CO₂, water and cost", question="What does a million tokens take?"
    ),
    Page(
        name="hardware",
        menu="Hardware",
        title="Parallelism, presets and quantization",
        question="What do GPUs, parallelism and number formats change?",
    ),
    Page(
        name="claims",
        menu="Checks",
        title="Claims and checks",
        question="Do the figures support what is said of them?",
    ),
    Page(name="trials", menu="Trials", title="Trials", question="What happened in each launch?"),
)


def _notebook(name: str) -> Path:
    """Where the notebook of one of our pages is."""
    return paths.NOTEBOOKS / f"{'overview' if name == 'index' else name}.ipynb"


SWEEP_PAGES = tuple(
    replace(page, notebook=_notebook(page.name), order=10 * place) for place, page in enumerate(_OURS, 1)
)
"""Our pages of each sweep, in the order of the menu."""
LAST = 1000
"""Place of a page whose notebook gives none."""
WORDS = {"title": str, "menu": str, "question": str, "order": int, "limit_s": int}
"""Keys of a notebook's `tokenpeak` metadata, and their types."""
LONGEST = 200
"""Characters of a title, a menu entry or a question."""
SITE_PAGES: tuple[Page, ...] = (
    Page(name="index", menu="Sweeps", title="TokenPeak", question="What has been measured?"),
    Page(name="compare", menu="Compare", title="Compare", question="What differs between configs, sweeps or dates?"),
    Page(name="methodology", menu="Methodology", title="Methodology", question="How was this measured?"),
)

RESERVED = frozenset({"static", "docs", "feed.atom", "live.html", *(f"{page.name}.html" for page in SITE_PAGES)})
"""What is in the site's own folder beside the sweeps."""

OF_A_SWEEP = ("archive", "study")
"""Parameters that the site gives each sweep's notebooks itself."""

DOCS = Page(name="docs", menu="Docs", title="Documentation", question="How is it used, and what is what?")
LIVE = Page(name="live", menu="Live", title="Live", question="How far is the sweep?")


def pages_of_sweeps(folder: Path | None = None) -> tuple[Page, ...]:
    """The pages that each sweep has, in the order of the menu: ours, and the user's notebooks in `folder`."""
    ours = {page.notebook.name for page in SWEEP_PAGES if page.notebook}
    used = {page.name for page in SWEEP_PAGES}
    found = []
    for notebook in sorted((folder or paths.OWN_NOTEBOOKS).glob("[!.]*.ipynb")):
        if notebook.name not in ours:
            page = _own(notebook, used)
            used.add(page.name)
            found.append(page)
    return tuple(sorted((*SWEEP_PAGES, *found), key=lambda page: page.order))


def _own(notebook: Path, used: set[str]) -> Page:
    """A user's page, by its notebook's metadata where that can be read."""
    name = slug(notebook.stem) or "page"
    while name in used:
        name = f"own-{name}"
    words = notebook.stem.replace("_", " ").replace("-", " ").strip().capitalize()
    page = Page(name=name, menu=words, title=words, question="", notebook=notebook, order=LAST, own=True)
    try:
        given = json.loads(bounded.read_bytes(notebook)).get("metadata", {}).get("tokenpeak", {})
        problem = _problem(given)
    except (ArchiveError, OSError, ValueError, AttributeError, RecursionError) as error:
        return replace(page, problem=f"{notebook.name} is no notebook: {shown(str(error), 200)}")
    if problem:
        return replace(page, problem=f"{notebook.name}: {problem}")
    return replace(page, **{"menu": given.get("title", words), **given})


def _problem(given: object) -> str:
    """What is wrong with a notebook's metadata of its page; empty when nothing is."""
    if not isinstance(given, dict):
        return f"metadata.tokenpeak is {shown(given)}. It must be an object with {', '.join(WORDS)}."
    for key, value in given.items():
        if key not in WORDS:
            return f"metadata.tokenpeak has {shown(key)}. {suggestion(key, WORDS)}"
        if not isinstance(value, WORDS[key]) or isinstance(value, bool):
            kind = "a whole number" if WORDS[key] is int else "text"
            return f"metadata.tokenpeak.{key} is {shown(value)}. It must be {kind}."
        if isinstance(value, str) and not (value.strip() and len(value) <= LONGEST):
            return f"metadata.tokenpeak.{key} is {shown(value)}. It must have 1 to {LONGEST} characters."
    if given.get("limit_s", 1) < 1:
        return f"metadata.tokenpeak.limit_s is {given['limit_s']}. It must be ≥ 1 second."
    return ""


TAG = "parameters"
"""Of the cell that declares them."""
_CHOICES = re.compile(r"one of:\s*([^;]+)")
_BOUND = re.compile(r"(≥|>)\s*(-?\d+(?:\.\d+)?)")
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A parameter as its notebook declares it."""

    name: str
    kind: str
    """str, int, float, bool or list; empty where neither a type nor the default says."""
    default: object
    comment: str = ""
    """What the line says after `#`: the unit, the bound and the choices."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What the value may be; empty: anything of its type."""
        found = _CHOICES.search(self.comment)
        return tuple(word.strip(" \"'`") for word in found[1].split(",")) if found else ()

    def value(self, given: object) -> object:
        """What is given, text included, as a value of the declared type; InputError where it is none or not allowed."""
        value = self._typed(given) if isinstance(given, str) else given
        if self.choices and str(value) not in self.choices:
            raise InputError(f"{self.name} is {value!r}. {suggestion(str(value), self.choices)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{self.name} is {given!r}. It must be a finite number.")
        bound = _BOUND.search(self.comment)
        if bound and isinstance(value, int | float):
            least = float(bound[2])
            if value < least or (value == least and bound[1] == ">"):
                raise InputError(f"{self.name} is {value!r}. It must be {bound[0]}: {self.comment}.")
        return value

    def _typed(self, text: str) -> object:
        try:
            match self.kind:
                case "int":
                    return int(text)
                case "float":
                    return float(text)
                case "bool":
                    return {word: word in _YES for word in (*_YES, *_NO)}[text.casefold()]
                case "list":
                    found = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
                    return [item.strip() if isinstance(item, str) else item for item in found]
        except (ValueError, KeyError) as error:
            kind = {"int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}[self.kind]
            about = f" ({self.comment})" if self.comment else ""
            raise InputError(f"{self.name} is {text!r}. It must be {kind}{about}.") from error
        return text


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
