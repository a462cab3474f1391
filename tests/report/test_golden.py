"""The golden site is what its archive makes, and the start notebook shows what it gives."""

import difflib
from pathlib import Path

import nbformat
from golden_site import kept, normal, outputs, pages, started

from tokenpeak.report.site.pages import START


def test_site_is_the_golden_one(small: Path) -> None:
    """Each page of the small archive is as it was last looked at; `make golden` renews them."""
    now, before = pages(small), kept()
    pairs = [(name, before.get(name, "").splitlines(), now.get(name, "").splitlines()) for name in {**before, **now}]
    differences = [line for name, old, new in pairs for line in difflib.unified_diff(old, new, name, "now", n=0)]

    assert [] == [line[:300] for line in differences[:40]]


def test_the_start_notebook_shows_what_it_gives(tmp_path: Path) -> None:
    """Its saved outputs, tables and a chart, are those of a fresh clone; `make golden` renews them."""
    saved = nbformat.read(START, as_version=4)

    assert outputs(saved).splitlines() == outputs(started(tmp_path)).splitlines()
    assert START.stat().st_size < 60_000


def test_words_of_pictures_are_compared() -> None:
    """A picture's words and its figure's numbers count; its layout and a float's last digits do not."""
    one = '<svg version="1.1" class="marks" width="10"><text x="1">A100</text></svg> 0.12345678912345'
    other = '<svg version="1.1" class="marks" width="11"><text x="2">A100</text></svg> 0.12345678912399'

    assert normal(one) == normal(other)
    assert normal(one) != normal(other.replace("A100", "L4"))
