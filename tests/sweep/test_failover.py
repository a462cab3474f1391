"""A controller that dies or hangs in the middle of a sweep, another that resumes it or looks at its nodes."""

import dataclasses
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from driven_home import SPEC, Home, read_until
from failover_bench import Bench, digests, end_production, longer, made, make_bench

from tokenpeak.node.machine import clock

CONFIGS = [8, 16, 32, 64]
EACH_ONCE = {f"max_num_seqs={value}": 1 for value in CONFIGS}
FENCED = 5


@pytest.fixture
def bench(home: Home, tmp_path: Path) -> Iterator[Bench]:
    """Two nodes that no controller owns, and a sweep of four configs."""
    found = make_bench(home, tmp_path, f"fail{secrets.token_hex(4)}", 2, longer(CONFIGS))
    yield found
    end_production(found)


def begun(bench: Bench) -> "tuple[subprocess.Popen[str], Path]":
    """The first controller's process in the middle of its sweep: a trial is recorded and others are under way."""
    process = bench.home.start("sweep", "--inventory", bench.inventory, "--sweep", bench.inventory, "--no-report")
    read_until(process, " begins")
    archive = bench.home.archives()[-1]
    assert clock.wait_until(lambda: bool(made(archive)), 120, poll_s=0.2)
    assert clock.wait_until(lambda: any((bench.node(n) / "engine.json").exists() for n in (0, 1)), 60)
    return process, archive


@pytest.mark.faults
@pytest.mark.faults_ci
def test_killed_controller_is_followed_by_another_machines(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a state folder and a home of its own it records each trial once, and production serves on every node."""
    process, archive = begun(bench)
    process.kill()
    process.communicate(timeout=60)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))

    done = bench.another("second").run("sweep", "--resume", archive.name, "--no-report")
    end = json.loads((archive / "end.json").read_text())

    assert 0 == done.returncode, done.stdout
    assert made(archive) == EACH_ONCE
    assert ("completed", []) == (end["status"], end["unrestored"])
    assert bench.all_answer_within(5)


@pytest.mark.faults
@pytest.mark.parametrize("wakes", ["meanwhile", "afterwards"])
def test_stopped_controller_that_wakes_up_is_fenced(bench: Bench, wakes: str) -> None:
    """It ends with one sentence and status 5; no file of the archive and no production is touched by it."""
    process, archive = begun(bench)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        second = bench.another("second").start("sweep", "--resume", archive.name, "--no-report")
        said = read_until(second, " begins")
        if wakes == "afterwards":
            said += second.communicate(timeout=300)[0]
        before, pids = digests(archive), [bench.production_pid(n) for n in (0, 1)]
    finally:
        os.kill(process.pid, signal.SIGCONT)
    first_said = process.communicate(timeout=60)[0]
    after = digests(archive)
    if wakes == "meanwhile":
        said += second.communicate(timeout=300)[0]

    assert process.returncode == FENCED, first_said
    last = first_said.strip().splitlines()[-1]
    assert f"tokenpeak: Sweep {archive.name} is carried on by " in last
    assert ", generation 2: " in last
    assert second.returncode == 0, said
    if wakes == "afterwards":
        assert before == after
        assert pids == [bench.production_pid(n) for n in (0, 1)]
    assert made(archive) == EACH_ONCE
    assert bench.all_answer_within(5)


@pytest.mark.faults
@pytest.mark.faults_ci
def test_controller_that_lives_keeps_its_sweep(bench: Bench) -> None:
    """A second one that resumes the sweep meanwhile ends with status 5, and the first one completes it."""
    process, archive = begun(bench)
    refused = bench.another("second").run("sweep", "--resume", archive.name, "--no-report")
    said = process.communicate(timeout=300)[0]

    assert refused.returncode == FENCED, refused.stdout
    assert "generation 1, which signs its claim in the archive: nothing was touched." in refused.stdout
    assert process.returncode == 0, said
    assert made(archive) == EACH_ONCE
    assert bench.all_answer_within(5)


@pytest.mark.faults
@pytest.mark.faults_ci
def test_probe_by_another_controller_leaves_a_sweep_alone(home: Home, tmp_path: Path) -> None:
    """A colleague's probe in the middle of a sweep costs none of its trials their API key.

    Should the controller die, the node gives itself back by the sweep's own deadlines.
    """
    inventory = home.root / "inventory"
    hosts = yaml.safe_load((inventory / "lone" / "hosts.yml").read_text())
    _, network, *rest = home.address.split(".")
    address = ".".join(["127", str(int(network) - 90), *rest])
    one = {"tokenpeak_host": address, "tokenpeak_state_dir": str(tmp_path / "node")}
    hosts["all"]["hosts"]["one"].update(one)
    (inventory / "common" / "group_vars").mkdir(parents=True)
    (inventory / "common" / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (inventory / "common" / "group_vars" / "all.yml").symlink_to(inventory / "lone" / "group_vars" / "all.yml")
    spec = {**SPEC, "deadlines": {**SPEC["deadlines"], "engine_stop_s": 7}}
    (home.root / "analysis" / "sweeps" / "long.yml").write_text(yaml.safe_dump(spec))
    colleague = dataclasses.replace(home, state=tmp_path / "colleague")

    sweep = home.start("sweep", "--inventory", "common", "--sweep", "long", "--no-report")
    said = read_until(sweep, "engine starts")
    armed = tmp_path / "node" / "record.json"
    assert clock.wait_until(armed.exists, 20)
    record = json.loads(armed.read_text())
    probed = colleague.run("probe", "--inventory", "common")
    said += sweep.communicate(timeout=200)[0]
    os.killpg(json.loads((tmp_path / "node" / "production.json").read_text())["pid"], signal.SIGKILL)

    assert 2 == len(list((tmp_path / "node").glob("secret-*"))), probed.stdout
    assert ["ok", "ok"] == [trial["status"] for trial in home.trials(home.archives()[-1])], said
    assert (60, 7) == (record["production_ready_s"], record["engine_stop_s"])
