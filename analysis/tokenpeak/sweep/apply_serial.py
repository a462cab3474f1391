"""Serial applies: one node first, then the rest so many at a time, and none more once one was not confirmed."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tokenpeak.records import ApplyRecord
from tokenpeak.sweep.apply import ApplyPlan


def batches(plans: Sequence[ApplyPlan], serial: int) -> Iterator[Sequence[ApplyPlan]]:
    """The first alone, then `serial` at a time."""
    yield plans[:1]
    for start in range(1, len(plans), serial):
        yield plans[start : start + serial]


def apply_serially(
    plans: Sequence[ApplyPlan],
    serial: int,
    apply: Callable[[ApplyPlan], ApplyRecord],
    *,
    stop: Callable[[], bool] = lambda: False,
) -> list[ApplyRecord]:
    """The records of those that were begun, first to last."""
    found: list[ApplyRecord] = []
    for batch in batches(plans, serial):
        if stop() or not batch:
            break
        with ThreadPoolExecutor(len(batch)) as pool:
            records = list(pool.map(apply, batch))
        found += records
        if any(record.status != "confirmed" for record in records):
            break
    return found
