"""Claims on a sweep's archive: who has it, who is refused, what an earlier controller cannot write; and ids."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.archive_factory import make_archive

from tokenpeak.errors import ArchiveError, FencedError
from tokenpeak.store.archive import Archive
from tokenpeak.sweep import claim as claims
from tokenpeak.sweep import controller
from tokenpeak.sweep.claim import SweepClaim, begin, require_silence, take_over
from tokenpeak.sweep.interrupt import Interrupt


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make_archive(tmp_path / "one", axes={"max_num_seqs": [8, 64]}, gpus=("NVIDIA L4",)).path


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Signatures and the watch for them take a tenth of their time; the controller is `first`'s."""
    monkeypatch.setattr(claims, "SIGN_S", 0.2)
    monkeypatch.setattr(claims, "SILENT_S", 1.5)
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / "first"))
    yield


def as_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From here on the controller is another one."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / "second"))


def test_superseded_controller_writes_nothing(archive: Path) -> None:
    """The write raises the sentence that says who has the sweep, leaves no file, and interrupts the sweep."""
    interrupt = Interrupt()
    first = begin(archive, interrupt)
    own = Archive(archive, first.require)
    end = own.read_end()
    assert end is not None
    own.write_end(end)
    take_over(archive, Interrupt(), above=0)
    before = (archive / "end.json").read_bytes()

    with pytest.raises(FencedError, match=r"is carried on by .*, generation 2: this controller, generation 1, ends"):
        own.write_end(end.model_copy(update={"trials": 99}))

    assert before == (archive / "end.json").read_bytes()
    assert not list(archive.rglob(".*.part"))
    assert interrupt.let_go()


def test_write_that_was_under_way_does_not_land(archive: Path) -> None:
    """A controller that hangs between its last look at the claim and the rename finds its file gone."""
    first = begin(archive, Interrupt())

    def look_and_hang() -> None:
        first.require()
        take_over(archive, Interrupt(), above=0)

    before = (archive / "end.json").read_bytes()
    own = Archive(archive, look_and_hang)
    end = own.read_end()
    assert end is not None

    with pytest.raises(ArchiveError, match="Could not write"):
        own.write_end(end.model_copy(update={"trials": 99}))

    assert before == (archive / "end.json").read_bytes()


def test_controller_that_signs_keeps_its_sweep(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it lives another one is refused; once it is silent, the other one is not."""
    first = begin(archive, Interrupt())
    closing = threading.Event()
    signing = threading.Thread(target=first._sign_until, args=(closing,))
    signing.start()
    as_second(monkeypatch, tmp_path)
    try:
        with pytest.raises(FencedError, match="generation 1, which signs its claim in the archive"):
            require_silence(archive, Interrupt(), lambda _: None)
    finally:
        closing.set()
        signing.join()
    said: list[str] = []
    require_silence(archive, Interrupt(), said.append)

    assert len(said) == 1
    assert said[0].startswith("Watching for 1.5 s whether the controller of this sweep lives: ")


def test_controller_that_ended_is_not_watched(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that ended in order, nor this controller's own that died."""
    with begin(archive, Interrupt()).kept():
        pass
    died = take_over(archive, Interrupt(), above=0)
    said: list[str] = []
    require_silence(archive, Interrupt(), said.append)
    with died.kept():
        pass
    as_second(monkeypatch, tmp_path)
    require_silence(archive, Interrupt(), said.append)

    assert [] == said


@pytest.mark.parametrize(("above", "generation"), [(0, 2), (1, 2), (6, 7)])
def test_generation_is_higher_than_any_known(archive: Path, above: int, generation: int) -> None:
    """Also than one that only the nodes know, where the archive is a copy; the archive of an older release counts 1."""
    claim = take_over(archive, Interrupt(), above=above)

    assert generation == claim.generation == claim.on_node["generation"]
    assert claim.holder.endswith(f", generation {generation}")


def test_of_two_that_resume_at_once_one_is_refused(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a generation is created once."""
    monkeypatch.setattr(claims, "_claims", lambda _: {})
    take_over(archive, Interrupt(), above=0)

    with pytest.raises(FencedError, match="is being resumed by another controller at this moment"):
        take_over(archive, Interrupt(), above=0)


def test_claim_that_was_not_written_to_its_end_supersedes_nobody(archive: Path) -> None:
    """A controller that died while it claimed leaves the one before with its sweep; its number is used up."""
    first = begin(archive, Interrupt())
    (archive / ".controller-2.json").write_text("{")
    first.require()
    third = take_over(archive, Interrupt(), above=0)

    assert third.generation == 3
    with pytest.raises(FencedError):
        first.require()
    assert "superseded_by" in json.loads((archive / ".controller-2.json").read_text())


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
