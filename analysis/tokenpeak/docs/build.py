"""Building the documentation: Markdown, figures and reference in, a folder of pages out, as a part of a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jinja2
from markupsafe import Markup

from tokenpeak.docs.contents import FOLDER, DocPage, Group, first_page, groups
from tokenpeak.docs.figures import drawn
from tokenpeak.docs.prose import headings, inline, rendered
from tokenpeak.docs.reference import reference_tables
from tokenpeak.docs.search_index import entries_of, script
from tokenpeak.docs.tables import ReferenceTable
from tokenpeak.report import render
from tokenpeak.report.pages import DOCS, SITE_PAGES

INDEX = "search-index.js"


@dataclass(frozen=True, kw_only=True)
class Documentation:
    """The documentation of a command line; called with a site's folder, it writes docs/ there."""

    commands: click.Group
    folder: Path = FOLDER

    def __call__(self, site: Path, *, live: bool = False) -> None:
        """Write every page into docs/ of the site."""
        env = render.environment().overlay()
        env.filters = env.filters | {"inline": inline, "markdown": lambda text: rendered(text, _no_figure)}
        contents = groups(self.folder)
        index: list[list[str]] = []
        for page in (first_page(self.folder), *(page for group in contents for page in group.pages)):
            tables = reference_tables(page.name, self.commands)
            found = headings(page.body)
            index += entries_of(page, found, tables)
            target = site / "docs" / f"{page.name}.html"
            target.parent.mkdir(parents=True, exist_ok=True)
            context = self._context(env, page, contents, tables)
            target.write_text(env.get_template("docs.html").render(headings=found, live=live, **context))
        (site / "docs" / INDEX).write_text(script(index))

    def _context(
        self, env: jinja2.Environment, page: DocPage, contents: Sequence[Group], tables: Sequence[ReferenceTable]
    ) -> dict[str, Any]:
        """What the template needs of a page."""
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
            "site_pages": SITE_PAGES,
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
