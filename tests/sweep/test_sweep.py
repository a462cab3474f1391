"""A sweep on a simulated node through the command line: from probing to the end record."""

import collections
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import MODEL, NOTIFIED, SPEC, Home, notified, read_until

from archive_factory import make_archive
from tokenpeak.node.machine import clock
from tokenpeak.report.compare.front_pages import calibrations

ANSIBLE_LOG = "ansible.log"


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, int, Home]:
    """A sweep of two configs on an inventory of which one node cannot be reached: what it said, and its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_LOG_PATH", str(home.root / ANSIBLE_LOG))
        done = home.run("sweep", "--inventory", "mixed", "--sweep", "pair", "--no-report")
    return done.stdout, done.returncode, home


@pytest.mark.integration
def test_every_step_is_a_task_of_a_playbook(swept: tuple[str, int, Home]) -> None:
    """Ansible's own log has the probe, and of each trial its launch, its load and its end."""
    _, _, home = swept
    log = (home.root / ANSIBLE_LOG).read_text()
    tasks = collections.Counter(re.findall(r"\| TASK \[(.+)\] \*", log))

    assert tasks["facts : Probe the node"] == 1
    for step in (
        "Launch the engine in production's place",
        "Run the load client",
        "Stop the engine and give the node back",
    ):
        assert tasks[step] >= 2, tasks


@pytest.mark.integration
def test_sweep_completes_on_the_nodes_that_are_there(swept: tuple[str, int, Home]) -> None:
    """Both configs are tried beside a node out of reach; production is back after each, and the end says what is known.

    Phases cover a trial one after the other; engine's metrics and sensors stand on one clock and give its energy.
    """
    said, status, home = swept
    trials: list[dict[str, Any]] = home.trials(home.archives()[-1])
    first = trials[0]

    assert 0 == status, said
    assert said.index("PROBLEM gone is unreachable") < said.index("begins")
    assert [("ok", True)] * 2 == [(trial["status"], trial["restoration"]["restored"]) for trial in trials]
    assert MODEL == home.production_answers()
    assert "2 launches, 2 configs that cannot differ" in said
    assert re.search(r"  Not known: max_num_seqs=(8|64) has nothing that it may be compared with\n", said)
    phases = first["phases"]
    assert {"orchestration", "engine_start", "load", "production_start"} == {phase["kind"] for phase in phases}
    assert pytest.approx(first["duration_s"], abs=0.1) == sum(phase["duration_s"] for phase in phases)
    assert {"requests_running", "gpu0_power_w"} <= set(first["series"]["columns"])
    assert "gpu_boards" == first["runs"][0]["energy"]["boundary"]


@pytest.mark.integration
def test_whom_the_inventory_names_is_notified(swept: tuple[str, int, Home]) -> None:
    """That the sweep has ended, once, with its id; a sweep in which nothing went wrong notifies of nothing else."""
    _, _, home = swept
    archive = home.archives()[-1].name

    assert clock.wait_until(lambda: bool(notified(home.root / NOTIFIED)), 15)
    (sent,) = notified(home.root / NOTIFIED)
    assert ("sweep_finished", archive, "mixed") == (sent["event"], sent["sweep_id"], sent["inventory"])
    assert f"Sweep {archive} is completed: 2 trials, 1 problem." == sent["text"]


@pytest.mark.e2e
def test_resume_of_a_finished_sweep_repeats_only_what_cannot_be_read(swept: tuple[str, int, Home]) -> None:
    """A trial file that is cut in half is named and its trial made again; the other one is kept as it is."""
    _, _, home = swept
    archive = home.archives()[-1]
    broken, kept = sorted((archive / "trials").glob("*.json"))
    broken.write_bytes(broken.read_bytes()[:100])
    before = kept.read_bytes()
    done = home.run("sweep", "--resume", archive.name, "--no-report")

    assert 0 == done.returncode, done.stdout
    assert f"PROBLEM {broken}" in done.stdout
    assert before == kept.read_bytes()
    assert 3 == len(list((archive / "trials").glob("*.json")))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--inventory", "loan"], "Did you mean lone"),
        (["--inventory", "lone", "--sweep", "pear"], "Did you mean pair"),
        (["--resume", "2026"], "No sweep '2026'"),
    ],
)
def test_unknown_name_is_answered_before_anything_is_touched(home: Home, arguments: list[str], complaint: str) -> None:
    """A typing error costs a second and touches no node."""
    done = home.run("sweep", *arguments)

    assert 2 == done.returncode
    assert complaint in done.stdout
    assert "Probing" not in done.stdout


def write_dataset_sweep(home: Home) -> Path:
    """A sweep `asked` of a dataset that lies in the project's folder; that file's path."""
    workload = {"kind": "dataset", "name": "asked", "path": "asked.jsonl", "output_tokens": 8}
    spec = {**SPEC, "workloads": [{**SPEC["workloads"][0], "workload": workload}]}
    (home.root / "analysis" / "sweeps" / "asked.yml").write_text(yaml.safe_dump(spec))
    return home.root / "asked.jsonl"


@pytest.mark.faults
@pytest.mark.faults_ci
def test_load_client_that_fails_says_nothing_of_a_config(home: Home) -> None:
    """A dataset is named from the project's folder; lost on the way, it fails no config, and production goes on."""
    path = write_dataset_sweep(home)
    path.write_text('{"prompt": "Write of water"}\n' * 24)
    process = home.start("sweep", "--inventory", "lone", "--sweep", "asked", "--no-report")
    read_until(process, " in all")
    read_until(process, " orchestration)")
    path.unlink()
    said, _ = process.communicate(timeout=120)
    trials = home.trials(home.archives()[-1])

    assert ["ok", "interrupted", "interrupted"] == [trial["status"] for trial in trials]
    assert "The dataset asked.jsonl of workload 'asked' does not exist" in said
    assert "one is left out from here on: 2 failures in a row." in said
    assert 1 == process.returncode


@pytest.mark.integration
def test_sweep_whose_nodes_were_renamed_touches_no_other(home: Home) -> None:
    """Nodes that came into the inventory since are not given back, installed or probed for another sweep."""
    archive = make_archive(home.root / "results" / "20000101-000000-renamed", end=False).path
    hosts = home.root / "inventory" / "synthetic" / "hosts.yml"
    hosts.parent.mkdir()
    hosts.write_text("all: {hosts: {another: {ansible_port: 9, ansible_host: 127.0.0.1}}}\n")
    done = home.run("sweep", "--resume", archive.name, "--no-report")
    shutil.rmtree(archive)

    assert 1 == done.returncode
    assert "has none of the nodes of sweep 20000101-000000-renamed any more (node-1, node-2" in done.stdout
    assert "another" not in done.stdout


@pytest.mark.e2e
@pytest.mark.parametrize("sweep", ["pair", "keep"])
def test_trial_that_cannot_be_written_waits_for_room(home: Home, sweep: str) -> None:
    """Production serves while there is no place for the archive, and afterwards nothing is lost or made twice."""
    process = home.start("sweep", "--inventory", "lone", "--sweep", sweep, "--no-report")
    said = read_until(process, " load\n")
    trials = home.archives()[-1] / "trials"
    trials.rename(trials.with_name("away"))
    trials.symlink_to("/proc/self")
    said += read_until(process, "to end the sweep before is to lose it")
    assert clock.wait_until(lambda: not (home.state / "nodes" / "one" / "lock.json").exists(), 60)
    assert MODEL == home.production_answers()
    trials.unlink()
    trials.with_name("away").rename(trials)
    rest, _ = process.communicate(timeout=120)

    assert 0 == process.returncode, said + rest
    assert ["0001", "0002"] == [str(trial["trial_id"])[:4] for trial in home.trials(trials.parent)]
    assert MODEL == home.production_answers()


@pytest.mark.e2e
def test_second_signal_still_restores(home: Home) -> None:
    """Ctrl-C twice while the engine starts does not wait for the teardown, but gives production back."""
    process = home.start("sweep", "--inventory", "lone", "--sweep", "pair", "--no-report")
    read_until(process, "engine starts")
    process.send_signal(signal.SIGINT)
    read_until(process, "Again: ")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)

    assert 130 == process.returncode, said
    assert MODEL == home.production_answers()


@pytest.mark.faults
@pytest.mark.faults_ci
def test_results_that_are_deleted_are_written_again(home: Home) -> None:
    """It is said at once; every trial is there afterwards, readers find the archive, and the exit status is 1."""
    process = home.start("sweep", "--inventory", "lone", "--sweep", "pair", "--no-report")
    said = read_until(process, " orchestration)")
    archive = home.archives()[-1]
    shutil.rmtree(home.root / "results")
    said += read_until(process, f"PROBLEM {archive} was deleted while the sweep ran")
    at_once = clock.wait_until(lambda: (archive / "sweep.json").is_file() and len(home.trials(archive)) == 1, 5)
    rest, _ = process.communicate(timeout=200)
    again = home.run("sweep", "--resume", archive.name, "--no-report")
    report = home.run("explain", str(archive))

    assert at_once
    assert 1 == process.returncode, said + rest
    assert ["ok", "ok"] == [trial["status"] for trial in home.trials(archive)], said + rest
    assert 0 == again.returncode, again.stdout
    assert 2 == len(home.trials(archive))
    assert "No archive" not in report.stdout


QUICK = ("--streams", "2", "--seconds", "0.6")


@pytest.mark.e2e
def test_sweep_attaches_the_calibration_of_its_way(home: Home) -> None:
    """A sweep says what is not covered before it begins, and its archive holds the calibration that stands for it."""
    before = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    done = home.run("calibrate", "--inventory", "shared", *QUICK)
    after = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    first, second = (json.loads((path / "sweep.json").read_text()) for path in home.archives()[-2:])
    (shown,) = calibrations(second["calibration"])

    assert 0 == done.returncode, done.stdout
    assert "not been calibrated from left + right to this machine over http" in before.stdout
    assert before.stdout.index("calibrated") < before.stdout.index("begins")
    assert None is first["calibration"]
    assert ["left", "right"] == second["calibration"]["calibrations"][0]["way"]["load_hosts"]
    assert shown["words"].startswith("from left + right to this machine over http: up to ")
    assert "WARNING concurrency=4 keeps 4 streams; 2 were found" in after.stdout or "keeps 4 streams; 0" in after.stdout
