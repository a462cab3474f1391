"""The main job against a real vLLM on this machine's CPU: `tokenpeak sweep --inventory cpu`, from install to site."""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak import paths

pytestmark = pytest.mark.e2e

PRODUCTION_PORT = 28000
"""Not the inventory's own: a sweep of this machine's user may have left its production there."""
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
SHORT = {
    "axes": {"max_num_seqs": [8, 32, 64]},
    "fixed": {"name": "fixed", "flags": {"dtype": "bfloat16", "max_model_len": 2048, "enforce_eager": True}},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 64, "output_tokens": 32},
            "levels": [{"concurrency": 16, "requests": 64}],
        }
    ],
    "search": {"baseline": []},
    "deadlines": {"engine_ready_s": 300, "lease_s": 20},
}


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
    """A checkout with the shipped inventories and sweeps, and a short sweep to be killed."""
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
    (root / "analysis" / "sweeps" / "killed.yml").write_text(yaml.safe_dump(SHORT))
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
    """Four configs and the engine's defaults give a result, and the best one's command is printed."""
    said, _, trials = swept
    ok = [trial for trial in trials if trial["status"] == "ok"]

    assert 5 == len({trial["config"]["config_id"] for trial in ok})
    assert {"0.32.0"} == {trial["startup"]["engine_version"] for trial in ok}
    assert all(trial["startup"]["kv_cache_tokens"] for trial in ok)
    assert "vllm serve" in said


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


def test_trial_says_what_it_cost_apart_from_engine_and_load(swept: tuple[str, Path, list[dict[str, Any]]]) -> None:
    """Phases cover each trial from start to end; what is TokenPeak's own is printed (8 s is the aim, 4 s is usual)."""
    _, _, trials = swept
    own_s = [
        sum(phase["duration_s"] for phase in trial["phases"] if phase["kind"] == "orchestration") for trial in trials
    ]
    print(f"orchestration of a trial: median {statistics.median(own_s):.1f} s, at most {max(own_s):.1f} s")

    assert [pytest.approx(trial["duration_s"], abs=0.1) for trial in trials] == [
        sum(phase["duration_s"] for phase in trial["phases"]) for trial in trials
    ]


def test_site_has_every_trial(swept: tuple[str, Path, list[dict[str, Any]]], checkout: Checkout) -> None:
    """The site is built, with a page for each trial."""
    _, archive, trials = swept
    built = checkout.root / "site" / "build"
    pages = {path.stem for path in (built / archive.name / "trials").glob("*.html")}

    assert (built / "index.html").is_file()
    assert {trial["trial_id"] for trial in trials} == pages


def test_killed_at_random_and_resumed_on_a_real_engine(checkout: Checkout) -> None:
    """SIGKILL of the controller at a random moment: production returns by itself, and resume repeats no trial."""
    seed = random.SystemRandom().randrange(1000)
    print(f"seed {seed}")  # so that a failure can be repeated
    process = subprocess.Popen(
        [TOKENPEAK, "sweep", "--inventory", "cpu", "--sweep", "killed"],
        env=checkout.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(random.Random(seed).uniform(15, 90))
    process.kill()
    process.wait()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            if production_answers():
                break
        except OSError:
            time.sleep(1)
    archive = checkout.newest()
    before = {trial["trial_id"]: trial for trial in checkout.trials(archive)}

    assert production_answers(), f"not back 90 s after SIGKILL, seed {seed}"
    done = checkout.sweep("--resume", archive.name)
    after = {trial["trial_id"]: trial for trial in checkout.trials(archive)}
    made = Counter(trial["config"]["name"] for trial in after.values() if trial["status"] == "ok")

    assert 0 == done.returncode, done.stdout
    assert before == {name: after[name] for name in before}
    assert dict.fromkeys(("max_num_seqs=8", "max_num_seqs=32", "max_num_seqs=64"), 1) == dict(made)
    assert production_answers()
