"""Sweeps of other kinds through the command line: a highest value, compared answers, several models, several builds."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import BUILDS, MODEL, OTHER_MODEL, SPEC, Home

from tokenpeak.quality.answers import verdict_of
from tokenpeak.records import TrialRecord
from tokenpeak.report import open_archive
from tokenpeak.report.trials.search_progress import search_notes
from tokenpeak.store.archive import Archive


@pytest.fixture(scope="module")
def climbed(home: Home) -> tuple[str, Archive, Sequence[TrialRecord]]:
    """A sweep that was interrupted in the second trial and resumed: what it said at its end, and its ended trials."""
    said, path = home.interrupted_and_resumed("lone", "climb", trials=2)
    archive = Archive(path)
    return said, archive, [trial for trial in archive.trials() if trial.status != "interrupted"]


Climbed = tuple[str, Archive, Sequence[TrialRecord]]


@pytest.mark.e2e
def test_few_real_launches_find_it(climbed: Climbed) -> None:
    """What starts and dies under the load is too high; the other config is then tried at the value found alone."""
    _, _, trials = climbed
    made = [(trial.config.choices["gpu_memory_utilization"], trial.status) for trial in trials]
    batches = [trial.config.choices["max_num_batched_tokens"] for trial in trials]

    assert [("0.95", "failed"), ("0.91", "ok"), ("0.93", "ok"), ("0.93", "ok")] == made
    assert ["4096"] * 3 + ["512"] == batches


@pytest.mark.e2e
def test_failures_have_their_cause(climbed: Climbed) -> None:
    """The engine was up and answering; its log says that memory ran out under the load."""
    _, _, trials = climbed
    failures = [trial.failure for trial in trials if trial.failure is not None]

    assert [("load", "out_of_memory")] == [(failure.phase, failure.cause) for failure in failures]
    assert all(trial.startup.ready_s for trial in trials)


@pytest.mark.e2e
def test_sweep_and_pages_say_what_was_found(climbed: Climbed) -> None:
    """The terminal's summary and the pages' note show the value, the launches and what failed."""
    said, archive, _ = climbed
    words = (
        "gpu_memory_utilization=0.93 is the highest of 0.91 to 0.97 that launched and carried the whole load, found "
        "in 3 launches of max_num_batched_tokens=4096; failed: 0.95 (out of memory)."
    )
    view = open_archive(archive.path)

    assert words in said
    assert words in str(search_notes(view)[0].parts[0])
    assert ("0.91", "0.93", "0.95") == view.axes["gpu_memory_utilization"]


ANSWERS = [
    {"name": "damaged", "env": {"TOKENPEAK_SIM_FAULT": "damaged_answers:1"}},
    {"name": "sound"},
    {"name": "broken", "env": {"TOKENPEAK_SIM_FAULT": "error_500:60"}},
]
"""One alternative answers right; another otherwise, and one cannot be measured to the end."""
QUALITY = {"tokens": 16_000}


@pytest.fixture(scope="module")
def compared(home: Home) -> tuple[str, Archive]:
    """What the sweep printed, and its archive."""
    spec: dict[str, Any] = {
        **SPEC,
        "axes": {"answers": ANSWERS},
        "quality": QUALITY,
        "search": {**SPEC["search"], "replicates": 2, "baseline": ["production"]},
    }
    (home.root / "analysis" / "sweeps" / "answers.yml").write_text(yaml.safe_dump(spec))
    done = home.run("sweep", "--inventory", "lone", "--sweep", "answers", "--no-report", limit_s=900)
    assert done.returncode == 0, done.stdout
    return done.stdout, Archive(home.archives()[-1])


@pytest.mark.integration
@pytest.mark.e2e
def test_only_what_passed_is_recommended(compared: tuple[str, Archive]) -> None:
    """Damaged and unknown configs are listed with their speed, and a sound one is recommended."""
    said, archive = compared
    quality = archive.read_quality()
    statuses = {}
    for trial in archive.trials():
        found = verdict_of(quality, trial.hardware, trial.config.config_id)
        statuses[trial.config.choices.get("answers", trial.config.name)] = found.verdict.status if found else None

    assert {"sound": "pass", "damaged": "fail", "broken": "unknown", "production": "pass"} == statuses, said
    assert "answers are compared with those of production (what runs now)" in said
    assert "worse than the reference's" in said
    assert "not known to be right" in said
    assert "not proven)" in said
    assert "  Keep production, as nothing is shown to be better" in said


@pytest.mark.integration
@pytest.mark.e2e
def test_a_launch_shows_the_answers_of_all_that_answer_alike(compared: tuple[str, Archive]) -> None:
    """Of the reference two launches are measured, of others one, of what broke off two; what failed is not repeated."""
    _, archive = compared
    measured: dict[str, int] = {}
    launched: dict[str, int] = {}
    for trial in archive.trials():
        name = trial.config.choices.get("answers", trial.config.name)
        launched[name] = launched.get(name, 0) + 1
        measured[name] = measured.get(name, 0) + (trial.quality is not None)

    # Production answers as the sound alternative does: they share the reference's two launches.
    assert 2 == measured["sound"] + measured["production"]
    assert {"damaged": 1, "broken": 2} == {name: measured[name] for name in ("damaged", "broken")}
    assert 1 == launched["damaged"]
    first = next(trial for trial in archive.trials() if trial.config.name == "production")
    passes = archive.read_answers(first.trial_id)
    assert passes is not None
    assert 2 == len(passes.passes)


@pytest.fixture(scope="module")
def two_models(home: Home) -> tuple["subprocess.CompletedProcess[str]", Path]:
    """What the sweep said, and its archive."""
    said = home.run("sweep", "--inventory", "models", "--sweep", "share", "--no-report")
    return said, home.archives()[-1]


@pytest.fixture(scope="module")
def trials_of(two_models: tuple[object, Path]) -> list[dict[str, Any]]:
    """The raw records of its trials_of."""
    return [json.loads(path.read_text()) for path in sorted(two_models[1].glob("trials_of/*.json"))]


@pytest.mark.e2e
def test_each_node_tunes_its_own_model(
    two_models: tuple["subprocess.CompletedProcess[str]", Path], trials_of: list[dict[str, Any]]
) -> None:
    """The engines were started with the model of their node, and each model has its own recommended command."""
    said = two_models[0].stdout
    served = {(trial["node"], trial["argv"][trial["argv"].index("serve") + 1]) for trial in trials_of}

    assert 0 == two_models[0].returncode, said
    assert {("one", MODEL), ("two", OTHER_MODEL)} == served
    assert {"ok"} == {trial["status"] for trial in trials_of}
    assert f"vllm serve {OTHER_MODEL} --served-model-name qwen" in said
    assert f"vllm serve {MODEL}" in said


@pytest.mark.e2e
def test_both_share_one_budget(
    two_models: tuple["subprocess.CompletedProcess[str]", Path], trials_of: list[dict[str, Any]]
) -> None:
    """Five trials_of were asked for and made, two or three of each model; the plan said so before."""
    made = [sum(trial["node"] == node for trial in trials_of) for node in ("one", "two")]

    assert [2, 3] == sorted(made)
    assert (
        "one budget for all, to begin with 3 trials_of for 1x NVIDIA L4 serving Llama-3.1-8B-Instruct; "
        in two_models[0].stdout
    )
    assert "0 trials_of recorded, about 5 in all" in two_models[0].stdout


# Four sweeps, seven minutes: beside everything else they would be half of the fast tests' time.


@pytest.fixture(scope="module")
def two_builds(home: Home) -> tuple[str, Path, Home]:
    """A sweep of one config on two builds: what it said, and its archive."""
    done = home.run("sweep", "--inventory", "builds", "--sweep", "versions", "--no-report")
    assert 0 == done.returncode, done.stdout
    return done.stdout, home.archives()[-1], home


@pytest.mark.e2e
def test_each_build_runs_its_own_program(two_builds: tuple[str, Path, Home]) -> None:
    """A build that a config asks for, by name or by version, is the program that is started."""
    _, archive, home = two_builds
    trials = home.trials(archive)

    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    started = {trial["config"]["engine"]: Path(trial["argv"][0]).name for trial in trials}
    assert {name: f"vllm-{release}" for name, release in BUILDS.items()} == started
    reported = {trial["config"]["engine"]: trial["startup"]["engine_version"] for trial in trials}
    assert BUILDS == reported


@pytest.mark.e2e
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
