"""Production of nodes that share a model store, after their controller died or was replaced by `tokenpeak restore`."""

import itertools
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from driven_home import SPEC, Home, read_until
from failover_bench import LEASE_S, Bench, end_production, longer, make_bench, now_s

from tokenpeak.node.machine import clock

NODES = 4
STAGGER_S = 6.0
START_S = 2.0
BEAT_S = LEASE_S / 4
SLACK_S = 6.0
"""Of a machine with two cores: the guard looks once a second, and four start processes of their own."""

pytestmark = pytest.mark.faults


@pytest.fixture
def bench(home: Home, tmp_path: Path) -> Iterator[Bench]:
    """Four nodes of one store, whose engines take longer to start than any test lasts."""
    deadlines = {**SPEC["deadlines"], "engine_ready_s": 200, "lease_s": LEASE_S}
    shared = home.root / "inventory" / "lone" / "group_vars" / "all.yml"
    production = yaml.safe_load(shared.read_text())["tokenpeak_production"]
    production["process"]["env"] = {"TOKENPEAK_SIM_START_S": str(START_S)}
    found = make_bench(
        home,
        tmp_path,
        f"store{secrets.token_hex(4)}",
        NODES,
        longer([8, 16, 32, 64], deadlines=deadlines),
        tokenpeak_engine_env={"TOKENPEAK_SIM_START_S": "190"},
        tokenpeak_production=production,
        tokenpeak_model_store={"name": "share", "stagger_s": STAGGER_S, "most_s": 60, "at_once": 1},
    )
    yield found
    end_production(found)


def killed(bench: Bench) -> float:
    """The controller's death while a trial has each node and the last launch is two beats ago; when that was."""
    arguments = ["--inventory", bench.inventory, "--sweep", bench.inventory, "--parallel", str(NODES)]
    process = bench.home.start("sweep", *arguments, "--no-report")
    read_until(process, " begins")
    assert clock.wait_until(bench.are_borrowed, 120, poll_s=0.2)
    time.sleep(2 * BEAT_S)
    died_s = now_s()
    process.kill()
    process.communicate(timeout=60)
    return died_s


@pytest.mark.faults_ci
def test_guards_start_production_one_after_the_other(bench: Bench) -> None:
    """Node k of the store starts k steps after its lease; the last is back within lease, steps and its own start."""
    died_s = killed(bench)
    last_s = LEASE_S + (NODES - 1) * STAGGER_S + START_S + SLACK_S
    assert bench.all_answer_within(last_s - (now_s() - died_s))
    began_s = [bench.production_began_s(n) - died_s for n in range(NODES)]

    for number, after_s in enumerate(began_s):
        due_s = LEASE_S + number * STAGGER_S
        assert due_s - BEAT_S - 1 <= after_s <= due_s + SLACK_S, began_s
    gaps = [after - before for before, after in itertools.pairwise(began_s)]
    assert min(gaps) >= STAGGER_S / 2, began_s


def test_restore_starts_no_more_than_the_store_bears(bench: Bench) -> None:
    """`tokenpeak restore` begins the next node's production only when the one before serves, long before the leases."""
    died_s = killed(bench)
    done = bench.home.run("restore", "--inventory", bench.inventory)
    ended_s = now_s()
    began_s = sorted(bench.production_began_s(n) for n in range(NODES))

    assert done.returncode == 0, done.stdout
    assert all(bench.answers(n) for n in range(NODES))
    assert ended_s - died_s < LEASE_S + STAGGER_S + SLACK_S
    gaps = [after - before for before, after in itertools.pairwise(began_s)]
    assert min(gaps) >= START_S, (began_s, done.stdout)
