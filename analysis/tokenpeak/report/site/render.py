"""Blocks and contexts into HTML: the Jinja environment, static pictures of figures, prose; and a digest of all that."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from tokenpeak import paths
from tokenpeak.files import write_atomically
from tokenpeak.report.blocks import display
from tokenpeak.report.blocks.display import HATCH, VEGALITE, packed_spec, sortable
from tokenpeak.report.checks import address

LONG_TEXT = 40
"""Most characters of a text in a column of usual width."""
_UNSAFE = re.compile("[&<>\"']")
EMBED = "window.vegaEmbed = vegaEmbed;"
"""What the bundle leaves for the site's own script to find."""
LIBRARIES = ("altair", "jinja2", "markdown-it-py", "polars", "tokenpeak", "vl-convert-python")


def table_rows(table: Mapping[str, Any], here: str) -> Markup:
    """The rows that a page shows of a table's block; `here` is the way to the sweep's folder."""
    columns = [(column["kind"], " data-off" if column["hidden"] else "") for column in table["columns"]]
    rows = table["rows"][: table["shown"]]
    tones = table["row_tones"][: table["shown"]] or ("",) * len(rows)
    folder = _escaped(here)
    parts = []
    for row, tone in zip(rows, tones, strict=True):
        parts.append(f'      <tr class="tone-{_escaped(tone)}">' if tone else "      <tr>")
        parts += [_cell(cell, kind, off, folder) for cell, (kind, off) in zip(row, columns, strict=True)]
        parts.append("</tr>\n")
    return Markup("".join(parts))  # noqa: S704 - all of it is escaped


def _cell(cell: Mapping[str, Any], kind: str, off: str, folder: str) -> str:
    text = cell["text"]
    shown = _escaped(text)
    classes, value = f"k-{kind}", ""
    if kind == "text":
        classes += " long" if len(text) > LONG_TEXT else ""
    elif kind == "state":
        classes += f" s-{_escaped(text.replace(',', '').replace(' ', '-').replace('–', 'none'))}"
    elif kind == "number" and "value" in cell:
        value = f' data-value="{sortable(cell["value"])}"'
    if "href" in cell:
        shown = f'<a href="{folder}{_escaped(cell["href"])}">{shown}</a>'
    elif kind == "code" and text != "–":
        shown = f"<code>{shown}</code>"
    return f'\n<td class="{classes}"{off}{value}>{shown}</td>'


def _escaped(text: str) -> str:
    """The text for HTML; most has nothing to escape, and `escape` makes an object of its own for each."""
    return str(escape(text)) if _UNSAFE.search(text) else text


@lru_cache
def environment(templates: Path = paths.TEMPLATES) -> jinja2.Environment:
    """The site's Jinja environment. Templates are compiled once."""
    env = display.jinja_environment(templates)
    env.filters["prose"] = prose
    env.filters["claim_links"] = claim_links
    env.filters["script_json"] = script_json
    env.filters["picture"] = picture
    env.filters["packed"] = packed_spec
    env.filters["table_rows"] = table_rows
    env.globals["tokenpeak_version"] = version("tokenpeak")
    return env


def prose(text: str) -> Markup:
    """Markdown as HTML; markup inside it is text, pictures and foreign links stay text too."""
    return Markup(_markdown().render(text))  # noqa: S704 - rendered with html off


def claim_links(text: str, here: str) -> Markup:
    """Text in which each claim, such as C4, leads to where it is judged; `here` is the way to the sweep's folder."""
    return Markup(re.sub(r"\bC\d+\b", lambda found: _claim_link(found[0], here), str(escape(text))))  # noqa: S704


def _claim_link(claim_id: str, here: str) -> str:
    return f'<a href="{escape(here)}claims.html#{address(claim_id)}">{claim_id}</a>'


@lru_cache
def _markdown() -> MarkdownIt:
    # Prose is written by us, in notebooks and in site/content; data never passes through here.
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def script_json(value: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for unsafe, safe in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(unsafe, safe)
    return Markup(text)  # noqa: S704 - no character of HTML is left in it


def picture(spec: dict[str, Any], prefix: str) -> Markup:
    """The figure as static SVG; identifiers carry `prefix`, so that pictures of one page do not share them."""
    return own_identifiers(display.svg(spec), prefix)


def own_identifiers(drawn: str, prefix: str) -> Markup:
    """A drawn picture for a page: its identifiers carry `prefix`, and its parts have no roles of their own."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', drawn)
    svg = re.sub(rf"url\(#(?!{HATCH}\))([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    # The element around it is one picture with one description; its parts have none of their own.
    svg = re.sub(r' (?:role|aria-roledescription|aria-label)="[^"]*"', "", svg)
    return Markup(svg)  # noqa: S704 - vega escapes the data's text


def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that fetches nothing; kept between builds."""
    kept = paths.state_dir() / "vega" / f"{VEGALITE}-{version('vl-convert-python')}.js"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, vl_convert.javascript_bundle(EMBED, VEGALITE))
    return kept.read_text()


@lru_cache
def code_digest() -> str:
    """A digest of everything that makes pages."""
    files = [
        *Path(__file__).parents[2].rglob("*.py"),
        *{*paths.NOTEBOOKS.glob("*.ipynb"), *paths.OWN_NOTEBOOKS.glob("*.ipynb")},
        *paths.TEMPLATES.glob("*"),
    ]
    # A folder or a dangling link that is named like a notebook has a page that says so, and no content.
    read = [path.read_bytes() for path in sorted(files) if path.is_file()]
    return hashlib.sha256(b"\0".join([*read, *(version(name).encode() for name in LIBRARIES)])).hexdigest()
