"""Applies on whole nodes under client load: slower configs are put back, equal ones are not, and no request fails."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.faults.apply_bench import APPLY_SPEC, ApplyBench
from tests.faults.balancer import Balancer, Clients, balancer, why_no_haproxy
from tests.faults.bench import MODEL
from tests.faults.conftest import boot_node, number_of, place  # noqa: F401

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

TIMES = int(os.environ.get("APPLIES", "20"))
"""How often a slower config and an equal one are applied."""
EQUAL, SLOWER = 64, 2
"""Of max_num_seqs: production takes 256, and its clients never have more than CLIENTS requests at once."""
CLIENTS = 8


def bench_of(folder: Path, number: int, name: str, last: int, **options: Any) -> ApplyBench:
    """A node with production on it, not yet prepared."""
    node = boot_node(folder, name, last)
    root = folder / f"home-{name}-{number}"
    return ApplyBench(node=node, root=root / "checkout", state=root / "state", **options)


@pytest.fixture(scope="module")
def loaded(place: Path) -> Iterator[ApplyBench]:  # noqa: F811
    """A node whose production clients load; a sweep of an equal config and of one slower under that load."""
    number = number_of(place)
    bench = bench_of(place, number, f"l{number}", 190 + number, bake={"bake_s": 6, "settle_s": 1})
    try:
        bench.spec = {**APPLY_SPEC, "axes": {"max_num_seqs": [SLOWER, EQUAL]}}
        with Clients(f"http://{bench.node.address}:8000", MODEL, count=CLIENTS).sending():
            bench.prepare()
        yield bench
    finally:
        bench.node.testnode("down")


@pytest.mark.parametrize(("value", "status"), [(EQUAL, "confirmed"), (SLOWER, "put_back")])
def test_applies_under_client_load(loaded: ApplyBench, value: int, status: str) -> None:
    """Every apply of the equal config is confirmed, every one of the slower is put back for what its bake shows."""
    clients = Clients(f"http://{loaded.node.address}:8000", MODEL, count=CLIENTS)
    found = []
    with clients.sending():
        for _ in range(TIMES):
            controller = loaded.apply(value)
            exit_status = controller.wait(200)
            record = loaded.records()[-1]
            found.append((record.status, record.bake.status if record.bake else None, exit_status))
            print(record.status, record.bake.reason if record.bake else record.message, flush=True)
            if record.status == "confirmed":
                loaded.roll_back()
            assert loaded.old == loaded.fingerprint(), controller.said

    bake, ended = ("passed", 0) if status == "confirmed" else ("slower", 3)
    assert [(status, bake, ended)] * TIMES == found


@pytest.fixture
def pair(place: Path, tmp_path: Path) -> Iterator[tuple[ApplyBench, ApplyBench, Balancer]]:  # noqa: F811
    """Two nodes in one inventory behind a real HAProxy."""
    if reason := why_no_haproxy():
        pytest.skip(reason)
    number = number_of(place)
    names = {f"p{number}": 210, f"q{number}": 211}
    addresses = {name: f"10.77.0.{last}:8000" for name, last in names.items()}
    made: list[ApplyBench] = []
    with balancer(tmp_path, 24_000, addresses) as front:
        for name, last in names.items():
            bake = {"bake_s": 10, "settle_s": 2}
            bench = bench_of(place, number, name, last, balancer=front, server=name, bake=bake, least_up=1)
            made.append(bench)
        try:
            for bench in made:
                bench.make_production()
            first, second = made
            hosts = first.root / "inventory" / "rig" / "hosts.yml"
            both = yaml.safe_load(hosts.read_text())
            other = yaml.safe_load((second.root / "inventory" / "rig" / "hosts.yml").read_text())
            both["all"]["hosts"].update(other["all"]["hosts"])
            hosts.write_text(yaml.safe_dump(both))
            yield first, second, front
        finally:
            for bench in made:
                bench.node.testnode("down")


def test_no_client_request_fails(pair: tuple[ApplyBench, ApplyBench, Balancer]) -> None:
    """A whole sweep on one of two nodes behind HAProxy, then an apply on both: no request of a steady load fails."""
    first, second, front = pair
    first.write_spec("four", {**APPLY_SPEC, "axes": {"max_num_seqs": [8, 16, 32, 64]}})
    for bench in pair[:2]:
        bench.await_steady(60)
    old = [first.fingerprint(), second.fingerprint()]
    clients = Clients(front.url, MODEL, count=CLIENTS)
    with clients.sending():
        swept = first.start("sweep", "--inventory", "rig", "--node", first.node.name, "--sweep", "four", "--no-report")
        assert swept.wait(400) == 0, swept.said
        after_sweep = clients.answered
        first.sweep_id = first.archives()[-1].name
        applied = first.start("apply", first.sweep_id, "--config", "max_num_seqs=64", "--despite", "simulated", "--yes")
        assert applied.wait(400) == 0, applied.said
    new = [first.fingerprint(), second.fingerprint()]
    confirmed = re.findall(r"^(\S+): CONFIRMED", applied.said, re.MULTILINE)
    print(f"{clients.answered} requests answered ({after_sweep} during the sweep), {len(clients.failed)} failed")

    assert [] == clients.failed
    assert clients.answered > after_sweep > 100
    assert [first.node.name, second.node.name] == confirmed
    assert all(before != after for before, after in zip(old, new, strict=True))
    for bench in (first, second):
        assert f"--max-num-seqs {64}" in bench.serving_arguments()
        assert front.is_in(bench.server)
