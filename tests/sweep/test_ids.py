"""Ids of sweeps, and the words by which nodes know who has them."""

import re
from pathlib import Path

import pytest

from tokenpeak.node import lock
from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import State
from tokenpeak.sweep import controller
from tokenpeak.sweep.resume import holder

WORDS = "20261121-010000-quick-sim"


def test_sweeps_of_one_second_have_ids_of_their_own(tmp_path: Path) -> None:
    """Two machines of one name, or two homes, that begin alike at one moment: neither id says the other's sweep."""
    ids = [controller.new_archive(tmp_path / home, WORDS).path.name for home in ("one", "two", "two")]

    assert 3 == len(set(ids))
    assert all(re.fullmatch(rf"{WORDS}-[0-9a-f]{{6}}", each) for each in ids)


def test_a_copied_archive_is_not_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One id on two controllers of one host name: the node goes on with whoever has it, and refuses the other."""
    state = State.make(tmp_path / "node")
    holders = []
    for home in ("one", "two"):
        monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / home))
        holders.append(holder(f"{WORDS}-4f2a9c"))
        assert holders[-1] == holder(f"{WORDS}-4f2a9c")
    lock.take(state, holders[0])
    state.write("record.json", {"holder": holders[0]})
    lock.take(state, holders[0])

    with pytest.raises(ScriptError, match="is held by sweep 20261121-010000-quick-sim-4f2a9c from"):
        lock.take(state, holders[1])
