"""How many nodes work at once, first come, first served."""

import json
import random
import threading
import time
from collections import Counter
from datetime import datetime, timedelta

import pytest
from driven_home import MODEL, Home

from tokenpeak.sweep.limits import ConcurrencyLimiter, GroupLimit

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
