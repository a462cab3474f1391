"""Writer of the documentation: Markdown, figures and reference in, a folder of pages out, as a part of a site.

A picture alone in its paragraph, `![What to see.](figure:ranking)`, is a figure of that name. Code that is fenced as
`sh parse` or `yaml sweep` is shown as `sh` or `yaml`; the second word is for the tests.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import jinja2
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from tokenpeak import bounded, paths
from tokenpeak.docs.analysis_tables import analysis_tables
from tokenpeak.docs.fields import Examples, SchemaTables
from tokenpeak.docs.figures import drawn
from tokenpeak.docs.reference_tables import (
    ReferenceTable,
    command_tables,
    frame_tables,
    metric_tables,
    status_tables,
    view_tables,
)
from tokenpeak.errors import ReportError
from tokenpeak.paths import slug
from tokenpeak.report.site import render
from tokenpeak.report.site.pages import DOCS, SITE_PAGES, Page
from tokenpeak.sweep.check_spec import sweep_schema
from tokenpeak.sweep.inventory.schema import inventory_schema
from tokenpeak.sweep.inventory.variables import InventoryVariables

FIGURE = "figure:"
PAGE_LINK = re.compile(r"^(?![a-z]+:)([\w./-]*)\.md(#.*)?$")
Draw = Callable[[str, str], Markup]
"""A figure's name and caption → its HTML."""
FOLDER = paths.CONTENT / "docs"
FIRST = "index"
"""The page that leads to all others."""
REFERENCE = FOLDER / "reference"
LONGEST_SAYS = 110
INDEX = "search-index.js"
_HEADING = re.compile(r"^#{2,6} .*$", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z0-9_.-]*[a-z0-9]")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of a page."""

    level: int
    title: str
    anchor: str


def rendered(text: str, draw: Draw) -> Markup:
    """A page's Markdown as HTML; markup inside it is text."""
    return Markup(_markdown().render(text, {"draw": draw}))  # noqa: S704 - rendered with html off


def inline(text: str) -> Markup:
    """One line of Markdown as HTML, without a paragraph around it."""
    return Markup(_markdown().renderInline(text))  # noqa: S704 - rendered with html off


def headings(text: str) -> list[Heading]:
    """The headings of a page below its title."""
    tokens = _markdown().parse(text)
    return [
        Heading(level=int(token.tag[1]), title=_plain(inner), anchor=str(token.attrs["id"]))
        for token, inner in pairwise(tokens)
        if token.type == "heading_open"
    ]


def plain(text: str) -> str:
    """One line of Markdown without its marks."""
    [token] = _markdown().parseInline(text)
    return _plain(token)


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


@cache
def _markdown() -> MarkdownIt:
    found = MarkdownIt("commonmark", {"html": False}).enable("table")
    found.core.ruler.push("anchors", _anchors)
    found.core.ruler.push("figures", _figures)
    for name, rule in {"fence": _fence, "link_open": _link, "html_block": _made}.items():
        found.add_render_rule(name, rule)
    return found


def _anchors(state: Any) -> None:
    """Give each heading an address, of its words."""
    for token, inner in pairwise(state.tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(_plain(inner)))


def _figures(state: Any) -> None:
    """Put a figure in the place of each paragraph that is one picture."""
    found: list[Token] = []
    for token in state.tokens:
        found.append(token)
        paragraph = found[-3:]
        if [each.type for each in paragraph] != ["paragraph_open", "inline", "paragraph_close"]:
            continue
        children = paragraph[1].children or []
        if len(children) == 1 and children[0].type == "image" and str(children[0].attrs["src"]).startswith(FIGURE):
            made = Token("html_block", "", 0)
            made.meta = {"figure": str(children[0].attrs["src"]).removeprefix(FIGURE), "says": children[0].content}
            found[-3:] = [made]
    state.tokens[:] = found


def _made(_: RendererHTML, tokens: list[Token], index: int, __: OptionsDict, env: Mapping[str, Any]) -> str:
    """A figure; no other HTML comes here."""
    meta = tokens[index].meta
    return str(env["draw"](meta["figure"], meta["says"]))


def _fence(_: RendererHTML, tokens: list[Token], index: int, __: OptionsDict, ___: Mapping[str, Any]) -> str:
    language = (tokens[index].info.split() or [""])[0]
    code = escape(tokens[index].content.rstrip("\n"))
    return f'<pre tabindex="0" class="wrap" data-language="{escape(language)}"><code>{code}</code></pre>\n'


def _link(
    renderer: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """A link to a Markdown file leads to its page."""
    token = tokens[index]
    if found := PAGE_LINK.match(str(token.attrs["href"])):
        token.attrs["href"] = f"{found[1]}.html{found[2] or ''}"
    return renderer.renderToken(tokens, index, options, env)


@dataclass(frozen=True, kw_only=True)
class DocPage:
    """A page of the documentation."""

    name: str
    """Its path below docs/, without an ending: `how-to/no-root`."""
    group: str
    """The group's title; empty for the first page."""
    text: str
    """Markdown that begins with the title and a sentence."""

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.text.partition("\n")[0].removeprefix("# ").strip()

    @property
    def summary(self) -> str:
        """Its first paragraph, as plain text."""
        paragraph = self.text.partition("\n\n")[2].partition("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def body(self) -> str:
        """Text below the title."""
        return self.text.partition("\n")[2]

    @property
    def root(self) -> str:
        """The way from it to the folder of the site."""
        return "/".join(".." for _ in self.name.split("/"))


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pages of one kind: a tutorial, guides, a reference or explanations."""

    title: str
    says: str
    """What its pages are for."""
    pages: tuple[DocPage, ...]


def groups(folder: Path = FOLDER) -> tuple[Group, ...]:
    """The groups of pages; a page that is not there, or has no title, is a ReportError."""
    found = []
    for entry in bounded.read_yaml(folder / "contents.yml", error=ReportError):
        pages = tuple(_page(folder, f"{entry['folder']}/{name}", entry["title"]) for name in entry["pages"])
        found.append(Group(title=entry["title"], says=entry["says"], pages=pages))
    return tuple(found)


def first_page(folder: Path = FOLDER) -> DocPage:
    """The page that leads to all others."""
    return _page(folder, FIRST, "")


def _page(folder: Path, name: str, group: str) -> DocPage:
    path = folder / f"{name}.md"
    if not path.is_file():
        raise ReportError(f"{folder / 'contents.yml'} names {name}, and {path} is not there.")
    text = path.read_text()
    if not text.startswith("# "):
        raise ReportError(f"{path} does not begin with a title, such as: # Tune V100 machines")
    return DocPage(name=name, group=group, text=text)


def tables_of(page: str, commands: click.Group) -> list[ReferenceTable]:
    """The tables of a page of the reference; none for a page without."""
    made: dict[str, Callable[[], list[ReferenceTable]]] = {
        "reference/sweep": sweep_tables,
        "reference/inventory": inventory_tables,
        "reference/commands": lambda: [*command_tables(commands), *status_tables()],
        "reference/sql": view_tables,
        "reference/frames": frame_tables,
        "reference/metrics": metric_tables,
        "reference/analysis": analysis_tables,
    }
    return made[page]() if page in made else []


@cache
def sweep_tables() -> list[ReferenceTable]:
    """Every field of a sweep."""
    schema = sweep_schema()
    files = [*sorted(REFERENCE.glob("sweep*.yml")), *sorted(paths.EXAMPLE_SWEEPS.glob("*.yml"))]
    return SchemaTables(schema, Examples(schema, files), "The file").tables()


@cache
def inventory_tables() -> list[ReferenceTable]:
    """Every variable of an inventory."""
    schema = inventory_schema()
    shipped = sorted(paths.EXAMPLE_INVENTORIES.glob("*/group_vars/all.yml"))
    files = [*sorted(REFERENCE.glob("inventory*.yml")), *shipped]
    required = [name for name, field in InventoryVariables.model_fields.items() if field.is_required()]
    return SchemaTables(schema, Examples(schema, files), "Variables", required).tables()


def entries_of(page: DocPage, headings: Iterable[Heading], tables: Iterable[ReferenceTable]) -> list[list[str]]:
    """Search entries of a page: `[title, address below docs/, page's title, a few words, text]` each.

    The text is that of the page before its first heading, and of each section; entries of tables have none.
    """
    address = f"{page.name}.html"
    texts = iter(_HEADING.split(page.body))
    found = [[page.title, address, page.group, shortened(plain(page.summary)), _words(next(texts))]]
    found += [
        [each.title, f"{address}#{each.anchor}", page.title, "", _words(text)]
        for each, text in zip(headings, texts, strict=True)
    ]
    for table in tables:
        found.append([plain(table.title), f"{address}#{table.anchor}", page.title, shortened(_first(table.says))])
        found += [
            [entry.name, f"{address}#{table.anchor_of(entry)}", plain(table.title), shortened(plain(entry.cells[-1]))]
            for entry in table.entries
        ]
    return found


def _words(text: str) -> str:
    """A section's different words, for a search that shows none of them."""
    return " ".join(dict.fromkeys(_WORD.findall(text.lower())))


def _first(says: str) -> str:
    """The first paragraph that is no code, without its marks."""
    paragraphs = [each for each in says.split("\n\n") if each and not each.startswith("```")]
    return plain(paragraphs[0]) if paragraphs else ""


def shortened(text: str) -> str:
    """A text that fits a line of results."""
    return text if len(text) <= LONGEST_SAYS else f"{text[:LONGEST_SAYS].rpartition(' ')[0]} …"


def script(entries: list[list[str]]) -> str:
    """The script that leaves the index for the page's own script."""
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return f"window.tokenpeakIndex = {text};\n"


@dataclass(frozen=True, kw_only=True)
class Documentation:
    """The documentation of a command line; called with a site's folder, it writes docs/ there."""

    commands: click.Group
    folder: Path = FOLDER

    def __call__(self, site: Path, *, live: bool = False, site_pages: tuple[Page, ...] = SITE_PAGES) -> None:
        """Write every page into docs/ of the site."""
        env = render.environment().overlay()
        env.filters = env.filters | {"inline": inline, "markdown": lambda text: rendered(text, _no_figure)}
        contents = groups(self.folder)
        index: list[list[str]] = []
        for page in (first_page(self.folder), *(page for group in contents for page in group.pages)):
            tables = tables_of(page.name, self.commands)
            found = headings(page.body)
            index += entries_of(page, found, tables)
            target = site / "docs" / f"{page.name}.html"
            target.parent.mkdir(parents=True, exist_ok=True)
            context = self._context(env, page, contents, tables)
            shared = {"headings": found, "live": live, "site_pages": site_pages}
            target.write_text(env.get_template("docs.html").render(**shared, **context))
        (site / "docs" / INDEX).write_text(script(index))

    def _context(
        self, env: jinja2.Environment, page: DocPage, contents: Sequence[Group], tables: Sequence[ReferenceTable]
    ) -> dict[str, Any]:
        """Variables of the template for a page."""
        order = [each for group in contents for each in group.pages]
        place = order.index(page) if page in order else -1
        return {
            "doc": page,
            "text": rendered(page.body, lambda name, says: _figure(env, name, says)),
            "groups": contents,
            "tables": tables,
            "previous": order[place - 1] if place > 0 else None,
            "following": order[place + 1] if place + 1 < len(order) else None,
            "page": DOCS,
            "documented": True,
            "root": page.root,
            "here": "",
            "sweep": None,
            "path": f"docs/{page.name}.html",
        }


def _figure(env: jinja2.Environment, name: str, says: str) -> Markup:
    found = drawn(name)
    svg = render.own_identifiers(found["svg"], f"f-{name}")
    return Markup(env.get_template("docs-figure.html").render(figure={**found, "svg": svg, "says": says, "name": name}))  # noqa: S704 - rendered by Jinja


def _no_figure(name: str, says: str) -> Markup:
    raise AssertionError(f"no table of the reference has a figure, and {name} is one ({says})")
