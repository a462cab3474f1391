"""A sweep over two engine builds of a simulated node, through the command line."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from driven_home import BUILDS, Home

# Four sweeps, seven minutes: beside everything else they would be half of the fast tests' time.
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, Path, Home]:
    """A sweep of one config on two builds: what it said, and its archive."""
    done = home.run("sweep", "--inventory", "builds", "--sweep", "versions", "--no-report")
    assert 0 == done.returncode, done.stdout
    return done.stdout, home.archives()[-1], home


def test_each_build_runs_its_own_program(swept: tuple[str, Path, Home]) -> None:
    """A build that a config asks for, by name or by version, is the program that is started."""
    _, archive, home = swept
    trials = home.trials(archive)

    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    started = {trial["config"]["engine"]: Path(trial["argv"][0]).name for trial in trials}
    assert {name: f"vllm-{release}" for name, release in BUILDS.items()} == started
    reported = {trial["config"]["engine"]: trial["startup"]["engine_version"] for trial in trials}
    assert BUILDS == reported


def test_another_program_than_the_build_fails(home: Home) -> None:
    """An engine that reports another version than its build is a failed trial with its cause, and carries no load."""
    spec = home.root / "analysis" / "sweeps" / "versions.yml"
    given = yaml.safe_load(spec.read_text())
    given["fixed"]["env"] = {"TOKENPEAK_SIM_VERSION": "0.24.0"}
    spec.with_name("swapped.yml").write_text(yaml.safe_dump(given))

    done = home.run("sweep", "--inventory", "builds", "--sweep", "swapped", "--no-report")
    trials = home.trials(home.archives()[-1])

    assert {"old": "ok", "new": "failed"} == {trial["config"]["engine"]: trial["status"] for trial in trials}
    (wrong,) = [trial for trial in trials if trial["status"] == "failed"]
    assert "wrong_engine" == wrong["failure"]["cause"]
    assert "0.32.0 was asked for, and the engine that was started reports 0.24.0" in wrong["failure"]["message"]
    assert [] == wrong["runs"]
    assert "0.24.0" == wrong["startup"]["engine_version"]
    assert wrong["restoration"]["restored"]
    assert "wrong_engine" in done.stdout


def test_nodes_with_other_builds_are_searched_apart(home: Home) -> None:
    """Each group has its plan, its search and its ranking; a build that one node lacks is dropped there alone."""
    folder = home.root / "inventory" / "unequal"
    shutil.copytree(home.root / "inventory" / "builds", folder, dirs_exist_ok=True)
    hosts = yaml.safe_load((home.root / "inventory" / "twins" / "hosts.yml").read_text())
    shared = yaml.safe_load((folder / "group_vars" / "all.yml").read_text())
    hosts["all"]["hosts"]["two"]["tokenpeak_engines"] = {"new": shared["tokenpeak_engines"]["new"]}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))

    done = home.run("sweep", "--inventory", "unequal", "--sweep", "versions", "--no-report")
    archive = home.archives()[-1]
    plans = {tuple(plan["nodes"]): plan for plan in json.loads((archive / "sweep.json").read_text())["plans"]}
    made = sorted((trial["node"], trial["config"]["engine"], trial["status"]) for trial in home.trials(archive))

    assert 0 == done.returncode, done.stdout
    assert {("one",): [], ("two",): ["engine_build"]} == {
        nodes: [dropped["rule"] for dropped in plan["dropped"]] for nodes, plan in plans.items()
    }
    assert [("one", "new", "ok"), ("one", "old", "ok"), ("two", "new", "ok")] == made
    assert "apart from two: engine builds old 0.24.0 + new 0.32.0 here, new 0.32.0 there" in done.stdout
    assert "1x NVIDIA L4 (new 0.32.0) on two" in done.stdout
