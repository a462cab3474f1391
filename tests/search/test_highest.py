"""The highest value that survives the load is found in few launches."""

import pytest

from tokenpeak.search.highest import Attempt, Found, Try, next_highest


def found_for(limit: float) -> Found:
    """The answer on a machine where values up to `limit` survive."""
    attempts: list[Attempt] = []
    while isinstance(step := next_highest(attempts), Try):
        attempts.append(Attempt(value=step.value, survived=step.value <= limit + 1e-9))
    return step


@pytest.mark.parametrize("hundredths", range(50, 99))
def test_every_limit_is_found(hundredths: int) -> None:
    """Whatever the limit, it is found to the step, in at most ten launches and in seven where it is usual."""
    found = found_for(hundredths / 100)

    assert pytest.approx(hundredths / 100) == found.value
    assert found.launches <= (7 if hundredths >= 83 else 10)


def test_nothing_that_works_is_no_value() -> None:
    """When even the lowest value fails there is none."""
    assert found_for(0.3).value is None


def test_what_survives_idle_but_not_the_load_is_too_high() -> None:
    """A value that once failed is never the answer, even if it survived before."""
    attempts = [Attempt(value=0.95, survived=True), Attempt(value=0.95, survived=False)]

    assert next_highest(attempts) == Try(value=0.91)
