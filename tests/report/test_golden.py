"""The golden site is what its archive makes."""

import difflib
from pathlib import Path

from golden_site import kept, normal, pages


def test_site_is_the_golden_one(small: Path) -> None:
    """Each page of the small archive is as it was last looked at; `make golden` renews them."""
    now, before = pages(small), kept()
    pairs = [(name, before.get(name, "").splitlines(), now.get(name, "").splitlines()) for name in {**before, **now}]
    differences = [line for name, old, new in pairs for line in difflib.unified_diff(old, new, name, "now", n=0)]

    assert [] == [line[:300] for line in differences[:40]]


def test_words_of_pictures_are_compared() -> None:
    """A picture's words and its figure's numbers count; its layout and a float's last digits do not."""
    one = '<svg version="1.1" class="marks" width="10"><text x="1">A100</text></svg> 0.12345678912345'
    other = '<svg version="1.1" class="marks" width="11"><text x="2">A100</text></svg> 0.12345678912399'

    assert normal(one) == normal(other)
    assert normal(one) != normal(other.replace("A100", "L4"))
