"""Sweeps whose load comes from two hosts of the inventory: processes of this machine, over pipes as over SSH."""

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import yaml
from driven_home import MODEL, SPEC, Home, read_until

LONG = {
    **SPEC,
    "axes": {"max_num_seqs": [8]},
    "workloads": [{**SPEC["workloads"][0], "levels": [{"concurrency": 4, "duration_s": 20}]}],  # type: ignore[index,dict-item]
}


@pytest.mark.e2e
def test_load_hosts_offer_a_trial_together(home: Home) -> None:
    """Each run of a trial is one record of all requests, and says what each host's part was."""
    done = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    archive = home.archives()[-1]
    trials = home.trials(archive)
    hosts = [trial["runs"][0]["client"]["hosts"] for trial in trials]
    rows = pl.read_parquet(min((archive / "trials").glob("*.requests.parquet")))

    assert 0 == done.returncode, done.stdout
    assert "Load comes from left, right" in done.stdout
    assert [[("left", 12), ("right", 12)]] * 2 == [
        [(host["load_host"], host["requests"]) for host in run] for run in hosts
    ]
    assert list(range(24)) == rows["request_index"].to_list()


@pytest.mark.e2e
def test_trials_that_run_together_share_no_load_host(home: Home) -> None:
    """Two nodes at work and two load hosts: each trial has one of its own, by what the runs themselves recorded."""
    done = home.run("sweep", "--inventory", "pool", "--sweep", "pair", "--no-report")
    trials = home.trials(home.archives()[-1])
    hosts = [[host["load_host"] for host in trial["runs"][0]["client"]["hosts"]] for trial in trials]
    began = [datetime.fromisoformat(str(trial["started_at"])) for trial in trials]
    ended = [at + timedelta(seconds=trial["duration_s"]) for at, trial in zip(began, trials, strict=True)]

    assert 0 == done.returncode, done.stdout
    assert {"one", "two"} == {trial["node"] for trial in trials}
    assert max(began) < min(ended), "both trials ran together"
    assert [["left"], ["right"]] == sorted(hosts)


def children(home: Home) -> list[int]:
    """The load hosts' processes that work for this home: those whose environment is its own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"tokenpeak.loadgen.workers.remote" in words and (
                f"TOKENPEAK_HOME={home.root}\0".encode() in (process / "environ").read_bytes()
            ):
                found.append(int(process.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sorted(found)


@pytest.mark.e2e
def test_lost_load_host_is_named_and_the_config_not_blamed(home: Home) -> None:
    """A host that is killed under load makes the run invalid and the trial interrupted; the config is tried again."""
    (home.root / "analysis" / "sweeps" / "long.yml").write_text(yaml.safe_dump(LONG))
    process = home.start("sweep", "--inventory", "shared", "--sweep", "long", "--no-report")
    read_until(process, " load\n")
    archive = home.archives()[-1]
    while len(children(home)) < 2:
        assert process.poll() is None
    os.kill(children(home)[-1], signal.SIGKILL)
    said, _ = process.communicate(timeout=200)
    first, second = home.trials(archive)

    assert ("interrupted", "load_host_lost") == (first["status"], first["failure"]["cause"])
    assert "Load host right was lost" in said
    assert ("ok", []) == (second["status"], second["runs"][0]["verdict"]["reasons"])
    assert MODEL == home.production_answers()


@pytest.mark.e2e
def test_load_host_that_is_not_there_stops_the_sweep_before_it_begins(home: Home) -> None:
    """A load host that cannot be reached is named, and production stays as it is."""
    hosts = home.root / "inventory" / "shared" / "hosts.yml"
    before = hosts.read_text()
    missing = yaml.safe_load(before)
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9, "tokenpeak_load_python": "x"}
    missing["all"]["children"]["load_hosts"]["hosts"]["gone"] = gone
    hosts.write_text(yaml.safe_dump(missing))
    try:
        done = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    finally:
        hosts.write_text(before)

    assert 1 == done.returncode
    assert "Load host gone: " in done.stdout
    assert "begins" not in done.stdout
