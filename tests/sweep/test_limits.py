"""Limits of a sweep: nodes at once, a group's unavailable nodes, shared model stores, nodes that fail."""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from driven_home import MODEL, Home

from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.search.history import Proposal
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.downtime_budget import Granted
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import (
    ConcurrencyLimiter,
    GroupLimit,
    NodeFailures,
    StoreLimiter,
    group_limits,
    lease_offset_s,
    model_stores,
)
from tokenpeak.sweep.trial.execution import TrialResult
from tokenpeak.sweep.trial.request import TrialRequest
from tokenpeak.sweep.trial.worker import SharedParts, Worker

RACK = GroupLimit(group="rack", nodes=frozenset({"one", "two", "three"}), most=1)


def test_a_node_that_does_not_come_back_keeps_its_group_from_working() -> None:
    """Who waits, and who comes later, gets the reason, with the node; that node itself may go on and come back."""
    limiter = ConcurrencyLimiter(3, [RACK])
    limiter.acquire("one")
    reasons: list[str | None] = []
    second = threading.Thread(target=lambda: reasons.append(limiter.acquire("two")))
    second.start()
    limiter.release("one", serves=False)
    second.join(5)

    words = "1 of the 3 nodes of rack may be unavailable: one"
    assert [words] == reasons
    assert words == limiter.acquire("three")
    assert limiter.acquire("three", to_restore=True) is None
    limiter.release("three")
    assert limiter.acquire("one") is None
    limiter.release("one")
    assert limiter.acquire("two") is None


@pytest.mark.parametrize("seed", range(5))
def test_no_group_ever_has_more_unavailable(seed: int) -> None:
    """Twelve workers over two racks and a service across them, in any order: counted apart from the limiter."""
    draw = random.Random(seed)
    names = [f"n{number}" for number in range(12)]
    limits = [
        GroupLimit(group="left", nodes=frozenset(names[:6]), most=2),
        GroupLimit(group="right", nodes=frozenset(names[6:]), most=1),
        GroupLimit(group="service", nodes=frozenset(names[3:9]), most=1),
    ]
    limiter = ConcurrencyLimiter(5, limits)
    lock = threading.Lock()
    working: set[str] = set()
    most: Counter[str] = Counter()

    def work(name: str, waits_s: float) -> None:
        for _ in range(3):
            assert limiter.acquire(name) is None
            with lock:
                working.add(name)
                for limit in limits:
                    most[limit.group] = max(most[limit.group], len(limit.nodes & working))
            time.sleep(waits_s)
            with lock:
                working.discard(name)
            limiter.release(name)

    threads = [threading.Thread(target=work, args=(name, draw.random() * 0.004)) for name in names]
    draw.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert not any(thread.is_alive() for thread in threads)
    assert {"left": 2, "right": 1, "service": 1} == dict(most)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("options", "sweep", "nodes", "said"),
    [
        (("twins", "--parallel", "1"), "pair", {"one", "two"}, "1 of 2 nodes work at once"),
        (("twins", "--parallel", "1"), "keep", {"one"}, "1 of 2 nodes work at once"),
        (("rack",), "pair", {"one", "two"}, "At most 1 of the 2 nodes of all are unavailable at a time"),
    ],
)
def test_nodes_beyond_the_bound_serve_until_it_is_their_turn(
    home: Home, options: tuple[str, ...], sweep: str, nodes: set[str], said: str
) -> None:
    """Of two nodes one is down at a time: one after the other, or, where a node is kept, the other is not needed."""
    done = home.run("sweep", "--inventory", *options, "--sweep", sweep, "--no-report")
    archive = home.archives()[-1]
    trials = sorted(home.trials(archive), key=lambda trial: str(trial["started_at"]))
    began = [datetime.fromisoformat(str(trial["started_at"])) for trial in trials]
    first_s = float(str(trials[0]["duration_s"]))
    end = json.loads((archive / "end.json").read_text())

    assert 0 == done.returncode, done.stdout
    assert said in done.stdout
    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    assert nodes == {trial["node"] for trial in trials}
    assert began[1] - began[0] >= timedelta(seconds=first_s)
    assert [] == end["unrestored"]
    assert MODEL == home.production_answers()


def limited(limits: Any) -> Inventory:
    """Seven nodes in two racks, one of which the sweep leaves out, with these limits declared."""
    names = tuple(f"n{number}" for number in range(7))
    nodes = tuple(Node(name=name, variables={"tokenpeak_max_unavailable": limits}) for name in names[:6])
    groups = {"all": names, "rack_a": names[:4], "rack_b": names[4:]}
    return Inventory(name="x", hosts_path=Path("hosts.yml"), nodes=nodes, groups=groups)


@pytest.mark.parametrize(
    ("declared", "most"),
    [
        ({"rack_a": 1, "all": 3}, {"rack_a": 1, "all": 3}),
        # Two of seven are 28.6%: shares are rounded down, of all nodes of the group.
        ({"all": "28%", "rack_a": "50%"}, {"all": 1, "rack_a": 2}),
        ({"all": "29 %"}, {"all": 2}),
        ({"rack_b": "100%"}, {"rack_b": 3}),
        (None, {}),
    ],
)
def test_limits(declared: Any, most: dict[str, int]) -> None:
    """A number is taken as it is, a share rounded down."""
    assert most == {limit.group: limit.most for limit in group_limits(limited(declared))}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"rack_c": 1}, "names the group 'rack_c', which inventory x does not have"),
        ({"rack_b": "33%"}, "33% of its 3 nodes is less than one node"),
        ({"all": 0}, "0 is no limit"),
        ({"all": "120%"}, "'120%' is no limit"),
        (["all"], "write KEY: VALUE"),
    ],
)
def test_what_can_be_no_limit_is_refused(declared: Any, words: str) -> None:
    """Before any node is stopped, with what to write instead."""
    with pytest.raises(InventoryError, match=words):
        group_limits(limited(declared))


def test_a_group_that_is_not_there_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    """By the command as typed: no node is probed for a sweep that could not begin."""
    for folder in ("playbooks", "analysis"):
        (tmp_path / folder).symlink_to(paths.ROOT / folder)
    shutil.copytree(paths.INVENTORIES / "sim", tmp_path / "inventory" / "sim")
    variables = tmp_path / "inventory" / "sim" / "group_vars" / "all.yml"
    variables.write_text(variables.read_text() + "\ntokenpeak_max_unavailable: {rack_c: 1}\n")
    environment = {**os.environ, "TOKENPEAK_HOME": str(tmp_path), "TOKENPEAK_STATE": str(tmp_path / "state")}
    tokenpeak = Path(sys.executable).with_name("tokenpeak")
    argv = [tokenpeak, "sweep", "--inventory", "sim", "--sweep", "quick"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert "names the group 'rack_c', which inventory sim does not have" in done.stderr
    assert "Probing" not in done.stdout + done.stderr


def sharing(*declared: Any) -> Inventory:
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
    inventory = sharing(store, store, store, store)

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
        model_stores(sharing(*declared))

    assert words in str(refused.value)


def test_no_more_than_so_many_are_given_back_at_once() -> None:
    """Of six nodes of a store two at a time; nodes of no store do not wait."""
    store = {"name": "nfs", "at_once": 2}
    limiter = StoreLimiter(sharing(*[store] * 6, None))
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


class Gone(Worker):
    """The worker of a node on which no trial can begin."""

    def _hindrance(self) -> str | None:
        return f"{self.node} is gone"

    def _carry_out(self, request: TrialRequest, on_event: Callable[[Event], None]) -> TrialResult:
        raise AssertionError("no trial begins")


def shared_parts(queue: Any, failures: Any, **own: Any) -> Any:
    """What workers share, with a budget that grants every trial."""
    budget = MagicMock()
    budget.ask.return_value = Granted(deadline_s=60.0)
    site = SimpleNamespace(interrupt=SimpleNamespace(gentle=lambda: False), load_hosts=MagicMock())
    given = {name: MagicMock() for name in ("spec", "archive", "answers", "progress", "notifier")} | own
    limiter = ConcurrencyLimiter(1)
    return SharedParts(
        site=site,  # type: ignore[arg-type]
        trial_queue=queue,
        budget=budget,
        limiter=limiter,
        node_failures=failures,
        **given,
    )


def test_workers_of_other_nodes_begin_nothing_more() -> None:
    """Of eight nodes that all fail, five are tried twice: then there are ten trials, and nobody claims another."""
    claimed: list[str] = []
    queue = MagicMock()
    queue.claim.side_effect = lambda _, node: (
        claimed.append(node) or (Proposal(config_id="c", replicate=0, reason=""), "0001-c")
    )
    failures = NodeFailures(0.5)
    for number in range(8):
        shared = shared_parts(queue, failures)
        Gone(shared, node=f"n{number}", ready=MagicMock(), restore_pending=False).run()

    assert [f"n{number}" for number in range(5) for _ in range(2)] == claimed
    queue.close.assert_called()


@pytest.mark.parametrize(
    ("good", "failed", "share", "ends"),
    [
        # Five of ten are half, not more.
        (5, {"a": 2, "b": 2, "c": 1}, 0.5, False),
        (5, {"a": 2, "b": 2, "c": 2}, 0.5, True),
        (8, {"a": 1, "b": 1, "c": 1}, 0.25, True),
        # One or two bad nodes, however often, are left out by themselves.
        (2, {"a": 9, "b": 9}, 0.5, False),
        # Nine trials are too few for a share.
        (0, {"a": 3, "b": 3, "c": 3}, 0.5, False),
        (0, {"a": 4, "b": 3, "c": 3}, 1.0, False),
    ],
)
def test_sweep_ends_beyond_the_share(good: int, failed: dict[str, int], share: float, *, ends: bool) -> None:
    """By trials that failed for reasons of three nodes or more, of ten or more trials."""
    failures = NodeFailures(share)
    for _ in range(good):
        failures.count("good", None)
    for node, times in failed.items():
        for _ in range(times):
            failures.count(node, "its driver is gone")

    assert ends == (failures.too_many is not None)
