"""Ids of sweeps, and the words by which nodes know who has them."""

import re
from pathlib import Path

import pytest

from tokenpeak.sweep import controller
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.interrupt import Interrupt

WORDS = "20261121-010000-quick-sim"


def test_sweeps_of_one_second_have_ids_of_their_own(tmp_path: Path) -> None:
    """Two machines of one name, or two homes, that begin alike at one moment: neither id says the other's sweep."""
    ids = [controller.new_archive(tmp_path / home, WORDS).path.name for home in ("one", "two", "two")]

    assert 3 == len(set(ids))
    assert all(re.fullmatch(rf"{WORDS}-[0-9a-f]{{6}}", each) for each in ids)


def test_a_copied_archive_is_not_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One id on two controllers of one host name: neither is the other to a node, nor is a later generation."""
    holders = []
    for home, generation in (("one", 1), ("two", 1), ("one", 2)):
        monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / home))
        holders.append(SweepClaim(tmp_path / f"{WORDS}-4f2a9c", generation, Interrupt()).holder)
        assert holders[-1] == SweepClaim(tmp_path / f"{WORDS}-4f2a9c", generation, Interrupt()).holder

    assert 3 == len(set(holders))
    assert all(each.startswith(f"sweep {WORDS}-4f2a9c from ") for each in holders)
