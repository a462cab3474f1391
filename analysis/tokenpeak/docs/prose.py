"""Markdown of the documentation as HTML: headings that can be linked to, links between pages, figures, code.

A picture alone in its paragraph, `![What to see.](figure:ranking)`, is a figure of that name. Code that is fenced as
`sh parse` or `yaml sweep` is shown as `sh` or `yaml`; the second word is for the tests.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from tokenpeak.paths import slug

FIGURE = "figure:"
PAGE_LINK = re.compile(r"^(?![a-z]+:)([\w./-]*)\.md(#.*)?$")
Draw = Callable[[str, str], Markup]
"""A figure's name and caption → its HTML."""


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
