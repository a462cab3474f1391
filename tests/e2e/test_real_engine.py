"""The main job against a real vLLM on this machine's CPU: `tokenpeak sweep --inventory cpu`, from install to site."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tokenpeak import paths

pytestmark = pytest.mark.e2e

PRODUCTION_PORT = 28000
"""Not the inventory's own: a sweep of this machine's user may have left its production there."""
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A checkout of its own that shares playbooks and inventories with this one, and its state."""

    root: Path
    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes the command line work in this checkout."""
        return {**os.environ, "TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.state)}

    def sweep(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The end of `tokenpeak sweep`; both streams are in stdout, and shown as they come."""
        with subprocess.Popen(
            [TOKENPEAK, "sweep", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                print(line, end="", flush=True)
                said += line
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    def newest(self) -> Path:
        """The newest archive."""
        return max(path.parent for path in (self.root / "results").glob("*/sweep.json"))

    def trials(self, archive: Path) -> list[dict[str, Any]]:
        """The archive's trial records, in order."""
        return [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("*.json"))]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout with the shipped inventories and sweeps."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("playbooks", "notebooks"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.ROOT / "site", root / "site", ignore=shutil.ignore_patterns("build"))
    shutil.copytree(paths.INVENTORIES / "cpu", root / "inventory" / "cpu")
    variables = root / "inventory" / "cpu" / "group_vars" / "all.yml"
    variables.write_text(variables.read_text().replace("18000", str(PRODUCTION_PORT)))
    hosts = root / "inventory" / "cpu" / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("{{ loopback }}.3", "127.0.0.1"))
    shutil.copytree(paths.SWEEPS, root / "analysis" / "sweeps")
    # Beside other lanes of tests two cores compile for longer than any user's engine starts.
    with (root / "analysis" / "sweeps" / "quick.yml").open("a") as sweep:
        sweep.write("deadlines: {engine_ready_s: 2400, run_s: 1800}\n")
    found = Checkout(root=root, state=tmp_path_factory.mktemp("state"))
    yield found
    subprocess.run([TOKENPEAK, "restore", "--inventory", "cpu"], env=found.environment, check=False, timeout=300)
    for process in found.state.glob("nodes/*/production.json"):
        os.killpg(json.loads(process.read_text())["pid"], signal.SIGKILL)


@pytest.fixture(scope="module")
def swept(checkout: Checkout) -> tuple[str, Path, list[dict[str, Any]]]:
    """The default sweep of the cpu inventory: what it said, its archive, and its trials."""
    done = checkout.sweep("--inventory", "cpu")

    assert 0 == done.returncode, done.stdout
    archive = checkout.newest()
    return done.stdout, archive, checkout.trials(archive)


def production_answers() -> bool:
    """Production gives a real completion."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PRODUCTION_PORT}/v1/models", timeout=10) as response:
        model = json.load(response)["data"][0]["id"]
    body = json.dumps({"model": model, "prompt": "The", "max_tokens": 1}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PRODUCTION_PORT}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return bool(json.load(response)["choices"])


def test_sweep_of_a_real_engine_ends_with_a_ranking(swept: tuple[str, Path, list[dict[str, Any]]]) -> None:
    """Four configs and the engine's defaults give a result, and a decision, with a command where it names one."""
    said, _, trials = swept
    ok = [trial for trial in trials if trial["status"] == "ok"]

    assert 5 == len({trial["config"]["config_id"] for trial in ok})
    assert {"0.32.0"} == {trial["startup"]["engine_version"] for trial in ok}
    assert all(trial["startup"]["kv_cache_tokens"] for trial in ok)
    assert re.search(r"^   1 +[\d.,]+ tok/s ", said, re.MULTILINE)
    # A busy machine may let none hold the SLO.
    assert ("vllm serve " in said) == (re.search(r"^  (Nothing holds|Not known)", said, re.MULTILINE) is None)


def test_impossible_config_is_a_classified_failure(swept: tuple[str, Path, list[dict[str, Any]]]) -> None:
    """The config that no engine can start is a row with its cause and the log's own words."""
    _, _, trials = swept
    failures = [trial["failure"] for trial in trials if trial["status"] == "failed"]

    assert ["context_too_long"] == [failure["cause"] for failure in failures]
    assert any("max_model_len" in line for line in failures[0]["evidence"])


def test_every_trial_gave_production_back(swept: tuple[str, Path, list[dict[str, Any]]]) -> None:
    """Production was running before each trial, stopped for it, and answers after the last."""
    _, _, trials = swept

    assert {(True, True)} == {
        (trial["restoration"]["restored"], trial["restoration"]["was_running"]) for trial in trials
    }
    assert production_answers()


def test_site_has_every_trial(swept: tuple[str, Path, list[dict[str, Any]]], checkout: Checkout) -> None:
    """The site is built, with a page for each trial."""
    _, archive, trials = swept
    built = checkout.root / "site" / "build"
    pages = {path.stem for path in (built / archive.name / "trials").glob("*.html")}

    assert (built / "index.html").is_file()
    assert {trial["trial_id"] for trial in trials} == pages
