"""Serial applies: one node first, then the rest so many at a time, and none more once one was not confirmed.

No more of a group are applied at a time than the inventory allows to be unavailable.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tokenpeak.records import ApplyRecord
from tokenpeak.sweep.apply import ApplyPlan
from tokenpeak.sweep.max_unavailable import GroupLimit


def batches(
    plans: Sequence[ApplyPlan],
    serial: int,
    limits: Sequence[GroupLimit] = (),
    down: frozenset[str] = frozenset(),
) -> Iterator[Sequence[ApplyPlan]]:
    """The first alone, then at most `serial` at a time, as many as the groups' limits allow beside the nodes `down`.

    A node that no limit ever allows is in none of them: `forbidden` says so beforehand.
    """
    yield plans[:1]
    left = list(plans[1:])
    while left:
        batch: list[ApplyPlan] = []
        for plan in left:
            away = down | {each.node for each in batch}
            if len(batch) < serial and not forbidden(plan.node, limits, away):
                batch.append(plan)
        if not batch:
            return
        yield batch
        left = [plan for plan in left if plan not in batch]


def forbidden(node: str, limits: Sequence[GroupLimit], down: frozenset[str]) -> list[str]:
    """Why the node may not become unavailable beside the nodes `down`; empty where it may."""
    reasons = (limit.forbidding(down, node) for limit in limits)
    return [reason for reason in reasons if reason is not None]


def apply_serially(
    plans: Sequence[ApplyPlan],
    serial: int,
    apply: Callable[[ApplyPlan], ApplyRecord],
    *,
    limits: Sequence[GroupLimit] = (),
    down: frozenset[str] = frozenset(),
    stop: Callable[[], bool] = lambda: False,
) -> list[ApplyRecord]:
    """The records of those that were begun, first to last."""
    found: list[ApplyRecord] = []
    for batch in batches(plans, serial, limits, down):
        if stop() or not batch:
            break
        with ThreadPoolExecutor(len(batch)) as pool:
            records = list(pool.map(apply, batch))
        found += records
        if any(record.status != "confirmed" for record in records):
            break
    return found
