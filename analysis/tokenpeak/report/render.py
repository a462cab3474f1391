"""Blocks and contexts into HTML: the Jinja environment, the static pictures of figures, and prose."""

import json
import re
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from tokenpeak import paths
from tokenpeak.atomic import write_atomically
from tokenpeak.report import display
from tokenpeak.report.checks import address
from tokenpeak.report.display import HATCH, VEGALITE
from tokenpeak.report.page_weight import packed_spec
from tokenpeak.report.table_rows import table_rows

EMBED = "window.vegaEmbed = vegaEmbed;"
"""What the bundle leaves for the site's own script to find."""


@lru_cache
def environment(templates: Path = paths.TEMPLATES) -> jinja2.Environment:
    """The site's Jinja environment: autoescape on, an undefined name is an error. Templates are compiled once."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
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
