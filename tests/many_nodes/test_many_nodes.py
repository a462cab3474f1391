"""What many nodes cost their controller, and 50 nodes at work whose controller is killed and replaced by another."""

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.many_nodes.rack import INVENTORY, RIG_NODES, START_S, Rack, RackNode, rack_of
from tests.many_nodes.user import User
from tests.rig.conftest import why_no_rig

from tokenpeak.node.machine import clock

NODES = tuple(map(int, os.environ.get("NODES", "1 12 50 200").split()))
MOST_KILLED = 50
TRIALS = 40
FEWEST = 5
"""On one node, where a search sees each trial before the next: it ends by itself once no config can be better."""
LIMIT_S = 3000.0
MOST_CPU_S_PER_PROBED_NODE = 1.5
"""Of twelve nodes or more, at the first probe; what one node takes is the command's own start."""
LEASE_S = 40.0
BEAT_S = LEASE_S / 4
STAGGER_S = 3.0
SLACK_S = 8.0
"""Of two cores: a guard looks once a second, and restores and productions of others start meanwhile."""
FORTY: dict[str, Any] = {
    "axes": {
        "max_num_seqs": [2, 4, 8, 16, 32, 64],
        "max_num_batched_tokens": [512, 1024, 2048, 4096, 8192],
        "enable_prefix_caching": [True, False],
    },
    "fixed": {"name": "fixed", "flags": {"max_model_len": 2048}},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 16},
            "levels": [{"concurrency": 2, "requests": 6}],
        }
    ],
    # So small a margin that none of the trials is left out.
    "search": {
        "strategy": "adaptive",
        "trials": TRIALS,
        "finalists": 0,
        "baseline": [],
        "anchor_every": None,
        "margin": 0.001,
    },
    "deadlines": {"engine_ready_s": 300, "run_s": 300, "production_ready_s": 300, "lease_s": 60},
}
"""Three seconds of two requests a second, forty times."""
pytestmark = [
    pytest.mark.many_nodes,
    pytest.mark.xdist_group("rig"),
    pytest.mark.skipif(why_no_rig() is not None, reason=str(why_no_rig())),
]


def of_all(rack: Rack, question: Callable[[RackNode], bool]) -> list[str]:
    """The nodes for which the answer is no."""
    with ThreadPoolExecutor(16) as pool:
        return [node.name for node, said in zip(rack.nodes, pool.map(question, rack.nodes), strict=True) if not said]


def launches(archive: Path) -> Counter[tuple[str, int, str]]:
    """Config, replicate and status → in how many trial files they stand."""
    trials = [json.loads(path.read_text()) for path in (archive / "trials").glob("[!.]*.json")]
    return Counter((trial["config"]["config_id"], trial["replicate"], trial["status"]) for trial in trials)


def each_once(archive: Path, fewest: int, most: int) -> bool:
    """Whether there are so many trials, all of them good, and none is there twice."""
    found = launches(archive)
    return fewest <= len(found) <= most and set(found.values()) == {1} and {status for *_, status in found} == {"ok"}


def recorded(user: User) -> int:
    """How many trials of the user's sweep are recorded; none before it has an archive."""
    return sum(sum(launches(archive).values()) for archive in user.archives())


@pytest.mark.parametrize("count", NODES)
def test_each_command_with_so_many_nodes(count: int) -> None:
    """All end well, a probe in bounded processor time; each trial is recorded once, and each production answers."""
    costs = {}
    with rack_of(count) as rack:
        user = rack.user("home", rack.working_folder({"forty": FORTY}, {"tokenpeak_default_sweep": "forty"}))
        for command in ("probe", "plan", "sweep", "restore"):
            options = f" --parallel {count} --no-report" if command == "sweep" else ""
            costs[command], printed = user.cost_of(f"tokenpeak {command} --inventory {INVENTORY}{options}", LIMIT_S)
            cost = costs[command]
            print(f"\n{count} nodes, {command}: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} s of processor time", flush=True)
            if command == "sweep":
                assert each_once(user.archives()[-1], TRIALS if count > 1 else FEWEST, TRIALS), printed
        assert [] == of_all(rack, RackNode.answers)
        assert [] == of_all(rack, RackNode.has_free_engine_port)

    assert count < RIG_NODES or costs["probe"].cpu_s / count <= MOST_CPU_S_PER_PROBED_NODE


def test_killed_controller_of_many_nodes_at_work() -> None:
    """Production comes back in declared steps, and another controller makes each trial that is missing, once."""
    count = min(MOST_KILLED, max(NODES))
    trials = min(count + count // 5 + 1, 60)
    spec = {
        **FORTY,
        "search": {"strategy": "random", "trials": trials, "baseline": [], "anchor_every": None, "finalists": 0},
        "deadlines": {**FORTY["deadlines"], "lease_s": LEASE_S},
    }
    store = {"name": "share", "stagger_s": STAGGER_S, "most_s": STAGGER_S * count, "at_once": 4}
    with rack_of(count) as rack:
        shared = {"tokenpeak_default_sweep": "some", "tokenpeak_model_store": store}
        first = rack.user("first", work := rack.working_folder({"some": spec}, shared))
        second = rack.user("second", work)
        for user in (first, second):
            user.cost_of(f"tokenpeak probe --inventory {INVENTORY}", LIMIT_S)
        # Some nodes end their first trials, so that there are trials before the controller dies.
        quick, others = rack.nodes[: max(1, count // 10)], rack.nodes[max(1, count // 10) :]
        for node in others:
            node.hold_engines(held=True)
        controller = first.start(f"tokenpeak sweep --inventory {INVENTORY} --parallel {count} --no-report")
        assert clock.wait_until(lambda: recorded(first) >= len(quick), 240, poll_s=0.5), controller.said
        for node in quick:
            node.hold_engines(held=True)
        at_work = clock.wait_until(lambda: all(node.has("engine.json") for node in rack.nodes), 240, poll_s=0.5)
        assert at_work, controller.said
        time.sleep(2 * BEAT_S)
        assert [node.name for node in rack.nodes] == of_all(rack, RackNode.answers)
        died_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        os.killpg(controller.process.pid, signal.SIGKILL)
        controller.wait(10)
        last_s = LEASE_S + (count - 1) * STAGGER_S + START_S + SLACK_S
        left_s = died_s + last_s - time.clock_gettime(time.CLOCK_BOOTTIME)
        is_back = clock.wait_until(lambda: of_all(rack, RackNode.answers) == [], left_s, poll_s=0.5)
        back_s = time.clock_gettime(time.CLOCK_BOOTTIME) - died_s
        in_turn = sorted(rack.nodes, key=lambda node: node.name)
        began_s = [node.production_began_s() - died_s for node in in_turn if node.answers()]
        late_s = [after_s - LEASE_S - number * STAGGER_S for number, after_s in enumerate(began_s)]
        gaps_s = [after - before for before, after in itertools.pairwise(began_s)]
        print(f"\n{count} nodes: last back after {back_s:.1f} s, at most {last_s:.1f} s", flush=True)
        print(f"starts {min(gaps_s):.2f} to {max(gaps_s):.2f} s apart, declared {STAGGER_S:g} s", flush=True)
        print(f"{min(late_s):.1f} to {max(late_s):.1f} s after they were due", flush=True)
        assert is_back, of_all(rack, RackNode.answers)
        of_all(rack, lambda node: node.hold_engines(held=False) or True)
        archive = first.archives()[-1]
        before = sum(launches(archive).values())
        assert len(quick) <= before <= trials - count
        cost, said = second.cost_of(f"tokenpeak sweep --resume {archive.name} --parallel {count} --no-report", LIMIT_S)
        end = json.loads((archive / "end.json").read_text())
        print(f"resumed elsewhere: {before} trials before, {trials} in {cost.wall_s:.0f} s", flush=True)

        assert ("completed", []) == (end["status"], end["unrestored"])
        assert each_once(archive, trials, trials), said
        assert [] == of_all(rack, RackNode.answers)
        assert [] == of_all(rack, RackNode.has_free_engine_port)
    assert all(-BEAT_S - 1 <= late <= SLACK_S for late in late_s), late_s
    assert min(gaps_s) >= STAGGER_S / 2, gaps_s
