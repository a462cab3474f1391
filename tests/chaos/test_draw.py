"""The draw: a seed's faults are always the same, and each fault of the catalogue can be struck."""

from tests.chaos.catalogue import CATALOGUE, described, draw, family, parse
from tests.chaos.hands import Hands
from tests.faults.test_matrix import PHASES


def test_a_seed_draws_the_same() -> None:
    """Faults, moments and lengths follow from the seed alone."""
    assert draw("7-3") == draw("7-3")
    assert draw("7-3") != draw("7-4")


def test_every_fault_is_drawn() -> None:
    """A thousand seeds meet the whole catalogue, one to three at a time."""
    drawn = [draw(f"all-{number}")[0] for number in range(1000)]

    assert set(CATALOGUE) == {fault.name for faults in drawn for fault in faults}
    assert {1, 2, 3} == {len(faults) for faults in drawn}


def test_every_fault_has_hands_and_phases() -> None:
    """Somebody strikes it, in a phase that is known."""
    assert [] == [name for name in CATALOGUE if not hasattr(Hands, f"_{family(name)}")]
    assert set() == {phase for phases, _ in CATALOGUE.values() for phase in phases} - set(PHASES)


def test_a_printed_list_is_read_again() -> None:
    """What a failing run prints can be played by hand."""
    faults = draw("1-2")[0]

    assert faults == parse(", ".join(map(described, faults)))
