"""A sweep of vLLM beside a server that is not vLLM, from its plan to the ranking."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import MODEL, SPEC, Home

from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.standings import rank
from tokenpeak.store.archive import Archive

STANDIN = str(paths.ROOT / "tests" / "llama_standin.py")
COMMAND = [sys.executable, STANDIN, "--host={host}", "--port={port}", "--model={model}", "--alias={served_model}"]
FILE = "/models/tiny.Q4_K_M.gguf"


def archive_quality(archive: Path) -> str:
    """What the verdicts on answers say that each config changes."""
    quality = Archive(archive).read_quality()
    assert quality is not None
    return str([each.changes for each in quality.verdicts])


def _workload(name: str, **keys: object) -> dict[str, Any]:
    return {"workload": {"name": name, "output_tokens": 8, **keys}, "levels": [{"concurrency": 4, "requests": 24}]}


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, str, Path]:
    """What the plan and the sweep said, and the archive."""
    variables = yaml.safe_load((home.root / "inventory" / "builds" / "group_vars" / "all.yml").read_text())
    variables["tokenpeak_engines"] |= {
        "llama": {"server": "llama.cpp", "command": COMMAND},
        "python": {"server": "llama-cpp-python", "command": [*COMMAND, "--python"]},
    }
    folder = home.root / "inventory" / "others"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables, sort_keys=False))
    (folder / "hosts.yml").write_bytes((home.root / "inventory" / "builds" / "hosts.yml").read_bytes())
    others = [{"name": name, "engine": name, "model": {"name": FILE}} for name in ("llama", "python")]
    others[0]["args"] = ["--ctx-size", "4096"]
    spec = {
        **SPEC,
        "axes": {"weights": [{"name": "bf16", "engine": "new"}, *others], "max_num_seqs": [8, 64]},
        "workloads": [
            _workload("text", kind="fixed", prompt="Explain Kubernetes in 3 sentences", salt=False),
            _workload("chat", kind="synthetic", endpoint="chat", input_tokens=16),
        ],
    }
    (home.root / "analysis" / "sweeps" / "others.yml").write_text(yaml.safe_dump(spec))
    plan = home.run("plan", "--inventory", "others", "--sweep", "others", "--all")
    done = home.run("sweep", "--inventory", "others", "--sweep", "others", "--no-report")
    assert 0 == done.returncode, plan.stdout + done.stdout
    return plan.stdout, done.stdout, home.archives()[-1]


@pytest.mark.integration
def test_whole_sweep(swept: tuple[str, str, Path], home: Home) -> None:
    """Each server carries the load with its own command, and production is back after each."""
    plan, said, archive = swept
    trials = {trial["config"]["name"]: trial for trial in home.trials(archive)}
    llama, python = trials["weights=llama"], trials["weights=python"]

    assert "llama.cpp is not vLLM" in " ".join(plan.split()), plan
    assert 4 == len(trials)
    assert {("ok", True)} == {(each["status"], each["restoration"]["restored"]) for each in trials.values()}, said
    assert MODEL == home.production_answers()
    assert ["llama.cpp"] * 2 == [llama[part]["engine_version"] for part in ("config", "startup")]
    assert COMMAND[:2] == llama["argv"][:2]
    assert [f"--model={FILE}", f"--alias={MODEL}", "--ctx-size", "4096"] == llama["argv"][-4:]
    for trial in (llama, python):
        assert ["valid", "valid"] == [run["verdict"]["status"] for run in trial["runs"]], trial["runs"]
        assert [24 * 8] * 2 == [run["summary"]["output_tokens"] for run in trial["runs"]]
    assert [24 * 7, None] == [each["runs"][0]["summary"]["input_tokens"] for each in (llama, python)]
    assert [0, None] == [(each["runs"][0]["engine"] or {}).get("waiting_max") for each in (llama, python)]


@pytest.mark.integration
def test_ranking_has_all_of_them(swept: tuple[str, str, Path]) -> None:
    """Each is listed with its measured speed; as nothing scores the answers of others, theirs is not proven."""
    _, said, archive = swept
    view = open_archive(archive)
    ranking = rank(view, view.hardware[0])
    rows = {row["axis_weights"]: row for row in ranking.frame.to_dicts()}

    assert {"bf16": None, "llama": "quality unknown", "python": "quality unknown"} == {
        name: row["why"] for name, row in rows.items()
    }
    assert all((row["objective"] or row["objective_unproven"]) > 0 for row in rows.values())
    assert ranking.decision.config == rows["bf16"]["config_id"]
    assert "Q4_K_M weights" in str(archive_quality(archive)), said
