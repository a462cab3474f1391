"""How many nodes work at once, first come, first served."""

import json
import threading
from datetime import datetime, timedelta

import pytest
from driven_home import MODEL, Home

from tokenpeak.node import clock
from tokenpeak.sweep.concurrency_limiter import ConcurrencyLimiter


def test_turns_are_had_in_the_order_in_which_they_were_asked_for() -> None:
    """Two of six work at once, never more, and nobody overtakes."""
    limiter = ConcurrencyLimiter(2)
    lock = threading.Lock()
    pairs = threading.Barrier(2)
    admitted: list[int] = []
    working: list[int] = [0]
    most = [0]

    def work(number: int) -> None:
        limiter.acquire()
        with lock:
            admitted.append(number)
            working[0] += 1
            most[0] = max(most[0], working[0])
        # Only two that work at the same time come past this.
        pairs.wait(10)
        with lock:
            working[0] -= 1
        limiter.release()

    for _ in range(2):
        limiter.acquire()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for number, thread in enumerate(threads):
        thread.start()
        while len(limiter._line) <= number:
            assert thread.is_alive()
    for _ in range(2):
        limiter.release()
    for thread in threads:
        thread.join(10)

    assert [0, 1, 2, 3, 4, 5] == admitted
    assert 2 == most[0]


@pytest.mark.e2e
@pytest.mark.parametrize(("sweep", "nodes"), [("pair", {"one", "two"}), ("keep", {"one"})])
def test_nodes_beyond_the_bound_serve_until_it_is_their_turn(home: Home, sweep: str, nodes: set[str]) -> None:
    """Of two nodes one is down at a time: one after the other, or, where a node is kept, the other is not needed."""
    done = home.run("sweep", "--inventory", "twins", "--sweep", sweep, "--parallel", "1", "--no-report")
    archive = home.archives()[-1]
    trials = sorted(home.trials(archive), key=lambda trial: str(trial["started_at"]))
    began = [datetime.fromisoformat(str(trial["started_at"])) for trial in trials]
    first_s = float(str(trials[0]["duration_s"]))
    end = json.loads((archive / "end.json").read_text())

    assert 0 == done.returncode, done.stdout
    assert "1 of 2 nodes work at once" in done.stdout
    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    assert nodes == {trial["node"] for trial in trials}
    assert began[1] - began[0] >= timedelta(seconds=first_s)
    assert [] == end["unrestored"]
    assert MODEL == home.production_answers()


@pytest.mark.e2e
def test_node_without_a_turn_holds_up_nobody_who_ends_the_sweep(home: Home) -> None:
    """Ctrl-C gives back the node that works, and ends the wait of the one that does not."""
    process = home.start("sweep", "--inventory", "twins", "--sweep", "pair", "--parallel", "1", "--no-report")
    armed = home.state / "nodes" / "one" / "record.json"
    other = home.state / "nodes" / "two" / "record.json"
    assert clock.wait_until(lambda: armed.exists() or other.exists(), 60)
    process.terminate()
    said, _ = process.communicate(timeout=60)

    assert 130 == process.returncode, said
    assert not armed.exists()
    assert not other.exists()
    assert MODEL == home.production_answers()
