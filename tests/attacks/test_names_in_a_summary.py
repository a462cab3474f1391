"""An archive names its config `@torvalds https://evil.example #1`: a gate's summary mentions, links and closes.

A service reads a CI job's summary, or a comment with it, as Markdown, and looks for mentions, issues and addresses in
what it makes of that, so that no entity keeps it from them. It looks into no code.
"""

import re
from types import SimpleNamespace
from typing import cast

import pytest
from markdown_it import MarkdownIt

from tokenpeak.gate.comparison import ConfigComparison, Gate
from tokenpeak.gate.environment import Difference
from tokenpeak.gate.side import Load, Side
from tokenpeak.gate.text import _cell, markdown
from tokenpeak.node.machine import words

MARKUP = re.compile(r"[@#$~`:]|&(?!lt;|gt;|amp;)|www\.|GH-|!\d")
"""What a service looks for outside of code."""
NAMES = [
    *("@torvalds", "a@evil.example", "https://evil.example/", "www.evil.example", "fixes #1", "acme/x#1", "GH-1", "!1"),
    *("$\\alpha$", "$`x`$", "~~x~~", "~1", "&#64;torvalds", ":bomb:", "<img src=x onerror=alert(1)>", "&lt;b&gt;"),
    *("`", "`` ` @torvalds", "`@torvalds", "a`@torvalds`b", "x | @torvalds | y", "[x](http://e)", "\\@torvalds"),
    *("\u202ex", "x\n\n# x", "x\r@torvalds", "x\u2028# x", "_x_", "**x**", "- x", "ftp://x", "mailto:a@b"),
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_more_than_its_text(name: str) -> None:
    """In the lines, the tables and the list: shown as it is, in code where it could be more, and in its cell."""
    side = cast("Side", SimpleNamespace(sweep_ids=(name,), simulated=False, cautions=(name,)))
    load = Load(workload=name, level=name, kind="closed", definition="")
    compared = ConfigComparison(hardware=name, config=name, by="id", load=load, outcome="regressed", reason=name)
    difference = Difference(hardware=name, what=name, old=(name,), new=(name,))
    gate = Gate(old=side, new=side, margin=0.02, comparisons=(compared,), differences=(difference,), only_new=())

    shown = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown(gate))
    bare = re.sub(r"<code>.*?</code>", "", shown)
    rows = [table.partition("</tbody>")[0] for table in shown.split("<tbody>")[1:]]

    assert not words.HIDDEN.search(shown.replace("\n", ""))
    assert {"a", "img", "s", "em", "h1"}.isdisjoint(re.findall(r"<(\w+)", bare))
    assert not MARKUP.search(re.sub("(Gate|New|Old|in 95%):", "", bare))
    assert 1 == bare.count("<strong>")
    assert [7, 3] == [row.count("<td>") for row in rows]


def test_plain_names_stay_plain() -> None:
    """Most are, and so are read as they are."""
    for name in ("awq-4bit tp=2", "1x Tesla T4", "chat rate 2.5/s", "\u221230.0% (\u221230.4% to \u221229.6%)"):
        assert name == _cell(name)
