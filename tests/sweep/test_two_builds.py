"""A sweep over two engine builds of a simulated node, through the command line."""

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
