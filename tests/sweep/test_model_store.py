"""Model stores that nodes share: how their leases differ, how many start at once, and what no store can be."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.errors import InventoryError
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import StoreLimiter, lease_offset_s, model_stores


def inventory_with(*declared: Any) -> Inventory:
    """Nodes n0, n1, … with these stores declared."""
    nodes = tuple(
        Node(name=f"n{number}", variables={"tokenpeak_model_store": value}) for number, value in enumerate(declared)
    )
    return Inventory(name="x", hosts_path=Path("hosts.yml"), nodes=nodes)


@pytest.mark.parametrize(
    ("store", "offsets_s"),
    [
        ({"name": "nfs"}, [0, 10, 20, 30]),
        ({"name": "nfs", "stagger_s": 4}, [0, 4, 8, 12]),
        # Three steps of 10 s are more than 15 s: they are made smaller, and stay even.
        ({"name": "nfs", "most_s": 15}, [0, 5, 10, 15]),
        ({"name": "nfs", "most_s": 0}, [0, 0, 0, 0]),
    ],
)
def test_leases_of_a_store(store: dict[str, Any], offsets_s: list[float]) -> None:
    """Each node's lease is longer than the one's before it, up to the bound."""
    inventory = inventory_with(store, store, store, store)

    assert offsets_s == [lease_offset_s(inventory, node.name) for node in inventory.nodes]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (["nfs"], "is 'nfs'; write KEY: VALUE"),
        ([{"stagger_s": 3}], "tokenpeak_model_store has no name"),
        ([{"name": "nfs"}, {"name": "nfs", "most_s": 9}], "differ in tokenpeak_model_store of the store nfs"),
    ],
)
def test_what_no_store_can_be(declared: list[Any], words: str) -> None:
    """The sentence says what to write."""
    with pytest.raises(InventoryError) as refused:
        model_stores(inventory_with(*declared))

    assert words in str(refused.value)


def test_no_more_than_so_many_are_given_back_at_once() -> None:
    """Of six nodes of a store two at a time; nodes of no store do not wait."""
    store = {"name": "nfs", "at_once": 2}
    limiter = StoreLimiter(inventory_with(*[store] * 6, None))
    lock, now, most = threading.Lock(), 0, 0

    def give_back(node: str) -> None:
        nonlocal now, most
        with limiter.restoring(node, lambda: False):
            with lock:
                now, most = now + 1, max(most, now + 1)
            time.sleep(0.05)
            with lock:
                now -= 1

    threads = [threading.Thread(target=give_back, args=(f"n{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    with limiter.restoring("n6", lambda: False):
        pass
    for thread in threads:
        thread.join()

    assert 2 == most
