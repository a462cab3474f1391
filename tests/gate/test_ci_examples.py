"""The ready files for CI: valid by each system's own schema, and their commands run on two nights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from archive_factory import make_archive
from docs.test_docs_commands import own_words, parsed
from tokenpeak import paths

EXAMPLES = paths.ROOT / "analysis" / "examples"
BIN = Path(sys.executable).parent


def load(name: str) -> dict[str, Any]:
    """An example."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return found


def scripts(name: str) -> tuple[list[str], dict[str, str]]:
    """The shell lines of an example's job, and its variables."""
    raw = load(name)
    if "jobs" in raw:
        job = raw["jobs"]["gate"]
        return [step["run"] for step in job["steps"] if "run" in step], job["env"]
    return ["\n".join(raw["nightly-gate"]["script"])], raw["nightly-gate"]["variables"]


NAMES = ("github-gate.yml", "gitlab-gate.yml")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("github-gate.yml", ["--builtin-schema", "vendor.github-workflows"]),
        ("gitlab-gate.yml", ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
    ],
)
def test_examples_are_valid(name: str, options: list[str], tmp_path: Path) -> None:
    """By the schema that the system itself is described by; one with a mistake is not."""

    def status(path: Path) -> int:
        return CliRunner().invoke(check_jsonschema, [*options, str(path)]).exit_code

    assert 0 == status(EXAMPLES / name)
    wrong = tmp_path / name
    wrong.write_text((EXAMPLES / name).read_text().replace("  gate:\n", "  gate: 7\n").replace("script:", "scripts:"))
    if "jobs" in load(name):
        wrong.write_text((EXAMPLES / name).read_text().replace("runs-on:", "run-on:"))
    assert 1 == status(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_examples_end_the_sweep_before_the_runner_does(name: str) -> None:
    """A runner's own limit kills: production would wait for its guard. The sweep has 20 minutes to give it back."""
    raw = load(name)
    runner_min = (
        raw["jobs"]["gate"]["timeout-minutes"] if "jobs" in raw else 60 * int(raw["nightly-gate"]["timeout"][0])
    )
    (sweep_min,) = (int(line.split()[1].removesuffix("m")) for line in scripts(name)[0] if line.startswith("timeout "))

    assert 20 <= runner_min - sweep_min <= 30


def night(folder: Path, seed: int) -> Path:
    """An archive of the nightly sweep: two configs on one L4, six launches each."""
    return make_archive(
        folder, axes={"max_num_seqs": [8, 64]}, gpus=("NVIDIA L4",), replicates=6, seconds=1, seed=seed
    ).path


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("speed", "status"), [(1.0, 0), (0.3, 3)])
def test_commands_of_examples_run(name: str, speed: float, status: int, tmp_path: Path) -> None:
    """Typed on a runner's working folder, they find tonight, compare it, and leave the files; the sweep is parsed."""
    home, work, summary = (tmp_path / word for word in ("home", "work", "summary.md"))
    work.mkdir()
    night(home / "accepted" / "20261120-010000-nightly-v100-aaaaaa", seed=1)
    tonight = night(home / "results" / "20261121-010000-nightly-v100-bbbbbb", seed=2)
    for path in tonight.glob("trials/*.json"):
        trial = json.loads(path.read_text())
        trial["runs"][0]["summary"]["output_tok_per_s"] *= speed
        path.write_text(json.dumps(trial))
    lines, variables = scripts(name)
    places = {"TOKENPEAK_HOME": str(home), "GITHUB_STEP_SUMMARY": str(summary)}
    environment = {**os.environ, **variables, **places, "PATH": f"{BIN}:{os.environ['PATH']}"}
    ended = []
    for line in lines:
        if line.startswith("timeout "):
            first, _, line = line.partition("\n")
            sweep = first.partition("m ")[2]
            (words,) = own_words(sweep.replace("$INVENTORY", "v100"))
            parsed(words)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line], cwd=work, env=environment, capture_output=True, check=False
        )
        ended.append(ran.returncode)

    assert status == max(ended)
    assert {"gate.xml", "gate.md", "gate.json"} == {path.name for path in work.iterdir()}
    assert summary.exists() == name.startswith("github")
