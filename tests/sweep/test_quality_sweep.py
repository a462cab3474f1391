"""A sweep whose launches are compared with a reference: only those that answer as it does are ranked."""

import json
from typing import Any

import pytest
import yaml
from driven_home import MODEL, SPEC, Home

from tokenpeak.search.history import outcome_of
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import open_frames

ANSWERS = [
    {"name": "sound", "flags": {"max_num_seqs": 2}},
    {"name": "damaged", "flags": {"max_num_seqs": 64}, "env": {"TOKENPEAK_SIM_FAULT": "damaged_answers:1"}},
    {"name": "broken", "flags": {"max_num_seqs": 64}, "env": {"TOKENPEAK_SIM_FAULT": "error_500:60"}},
]
"""The slow one answers right; a fast one answers otherwise, and another cannot be measured to the end."""


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, Archive]:
    """What the sweep printed, and its archive. Production has given the reference."""
    home.run("probe", "--inventory", "lone")
    url = f"http://{home.address}:18000"
    recorded = home.run(
        "quality", "record", url, "--model", MODEL, "--tokens", "10000", "--output", str(home.root / "answers.json")
    )
    assert recorded.returncode == 0, recorded.stdout
    spec: dict[str, Any] = {**SPEC, "axes": {"answers": ANSWERS}, "quality": {"reference": "answers.json"}}
    (home.root / "analysis" / "sweeps" / "answers.yml").write_text(yaml.safe_dump(spec))
    done = home.run("sweep", "--inventory", "lone", "--sweep", "answers", "--no-report")
    return done.stdout, Archive(home.archives()[-1])


@pytest.mark.e2e
def test_only_what_passed_is_recommended(swept: tuple[str, Archive]) -> None:
    """The damaged and the unknown config are listed with their speed, and the slow sound one is recommended."""
    said, archive = swept
    qualities = {
        trial.config.choices["answers"]: trial.quality.verdict.status for trial in archive.trials() if trial.quality
    }

    assert {"sound": "pass", "damaged": "fail", "broken": "unknown"} == qualities, said
    assert "worse than the reference's" in said
    assert "not known to be right" in said
    assert 2 == said.count("not proven)")
    words = [line for line in said.splitlines() if line.strip().startswith(("Winner:", "Recommended:", "Best, by"))]
    assert 1 == len(words), said
    assert "sound" in words[0]


@pytest.mark.e2e
def test_search_and_tables_leave_them_out(swept: tuple[str, Archive]) -> None:
    """The search sees no value of what did not pass, though it was measured well; tables give the reason."""
    _, archive = swept
    spec = SweepSpec.model_validate(archive.read_sweep().spec)
    outcomes = {trial.config.choices["answers"]: outcome_of(trial, spec) for trial in archive.trials()}
    frames = open_frames(archive.path)
    codes = {row["config_name"]: row["verdict_codes"] for row in frames.runs.iter_rows(named=True)}

    assert outcomes["sound"].feasible
    assert not outcomes["damaged"].feasible
    assert outcomes["damaged"].about_the_config
    assert [1] == frames.configs["rank"].drop_nulls().to_list()
    assert ["quality_failed"] in codes.values()


@pytest.mark.e2e
def test_measurement_is_a_phase_of_the_trial(swept: tuple[str, Archive]) -> None:
    """The time that it took is a phase of its own, inside of the trial."""
    _, archive = swept
    for trial in archive.trials():
        (phase,) = (phase for phase in trial.phases if phase.name == "quality")

        assert trial.quality is not None
        assert trial.quality.measurement.duration_s == phase.duration_s
        assert trial.duration_s is not None
        assert 0 < phase.started_s < phase.started_s + phase.duration_s < trial.duration_s


@pytest.mark.e2e
def test_reference_that_is_missing_stops_nothing(home: Home) -> None:
    """A sweep whose reference cannot be read is refused before anything is stopped."""
    spec = {**SPEC, "quality": {"reference": "nowhere.json"}}
    (home.root / "analysis" / "sweeps" / "nowhere.yml").write_text(yaml.safe_dump(spec))
    before = len(home.archives())
    done = home.run("sweep", "--inventory", "lone", "--sweep", "nowhere", "--no-report")

    assert done.returncode != 0
    assert "nowhere.json" in done.stdout
    assert before == len(home.archives())


def test_quality_needs_a_reference() -> None:
    """`quality` without a reference is refused, by its key."""
    with pytest.raises(ValueError, match=r"quality.reference"):
        SweepSpec.model_validate(json.loads(json.dumps({**SPEC, "name": "x", "quality": {}})))
