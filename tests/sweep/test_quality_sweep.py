"""A sweep that compares answers: only configs that answer as the reference does are ranked."""

from typing import Any

import pytest
import yaml
from driven_home import SPEC, Home

from tokenpeak.quality.answers import verdict_of
from tokenpeak.store.archive import Archive

pytestmark = pytest.mark.integration

ANSWERS = [
    {"name": "damaged", "env": {"TOKENPEAK_SIM_FAULT": "damaged_answers:1"}},
    {"name": "sound"},
    {"name": "broken", "env": {"TOKENPEAK_SIM_FAULT": "error_500:60"}},
]
"""One alternative answers right; another otherwise, and one cannot be measured to the end."""
QUALITY = {"tokens": 16_000}


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, Archive]:
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


@pytest.mark.e2e
def test_only_what_passed_is_recommended(swept: tuple[str, Archive]) -> None:
    """Damaged and unknown configs are listed with their speed, and a sound one is recommended."""
    said, archive = swept
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
    words = [line for line in said.splitlines() if line.strip().startswith(("Winner:", "Recommended:", "Best, by"))]
    assert 1 == len(words), said
    assert "sound" in words[0] or "production" in words[0]


@pytest.mark.e2e
def test_a_launch_shows_the_answers_of_all_that_answer_alike(swept: tuple[str, Archive]) -> None:
    """Of the reference two launches are measured, of others one, of what broke off two; what failed is not repeated."""
    _, archive = swept
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
