"""The quality measurement over HTTP on simulated engines: sound, damaged, and such that cannot be measured."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.quality.conftest import TOKENS
from tests.sim.running_engine import MODEL, RunningEngine, StartEngine

from tokenpeak.cli.quality import quality
from tokenpeak.loadgen.http.server import Server
from tokenpeak.quality.measure import Measured, measure
from tokenpeak.quality.verdict import Reference, judge
from tokenpeak.records.quality import QualityVerdict
from tokenpeak.spec.quality import MARGIN_NATS, QualityJob

JOB = QualityJob(tokens=TOKENS, context=2048)


def verdict(found: Measured, reference: Reference) -> QualityVerdict:
    answers = found.passes[0] if found.passes else None
    return judge(answers, found.measurement.problem, reference, MARGIN_NATS)


@pytest.mark.integration
def test_the_same_engine_agrees(sound: RunningEngine, reference: Reference) -> None:
    """An engine agrees with its own answers, token by token, and passes."""
    found = verdict(measure(Server(sound.url), MODEL, JOB), reference)

    assert "pass" == found.status
    assert (1.0, 1.0) == (found.same_answers, found.top1_agreement.estimate if found.top1_agreement else None)
    assert () == found.examples


@pytest.mark.integration
def test_damaged_engine_fails(start_engine: StartEngine, reference: Reference) -> None:
    """An engine whose log-probabilities are wrong by half a nat fails; examples name what it answered otherwise."""
    damaged = start_engine(fault="damaged_answers:0.5").wait_ready()
    found = verdict(measure(Server(damaged.url), MODEL, JOB), reference)

    assert "fail" == found.status
    assert found.top1_agreement is not None
    assert found.top1_agreement.high < 0.95
    assert found.examples
    assert any(each.question for each in found.examples)
    assert all(each.kl_nats > 0 for each in found.examples)


def test_shorter_context_has_shorter_questions(start_engine: StartEngine) -> None:
    """Long questions are made for the engine's own context where that is the shortest."""
    short = start_engine("--max-model-len", "512").wait_ready()
    found = measure(Server(short.url), MODEL, JOB)

    assert found.measurement.problem is None
    assert (512, 512) == (found.measurement.context, found.passes[0].context)
    assert found.measurement.longest_prompt is not None
    assert found.measurement.longest_prompt < 512


def test_engine_that_breaks_is_unknown(start_engine: StartEngine, reference: Reference) -> None:
    """An engine that answers some requests with an error gives no verdict, and the reason."""
    broken = start_engine(fault="error_500:9").wait_ready()
    found = measure(Server(broken.url), MODEL, JOB)

    assert () == found.passes
    assert "500" in (found.measurement.problem or "")
    assert "unknown" == verdict(found, reference).status


@pytest.mark.e2e
def test_commands(start_engine: StartEngine, sound: RunningEngine, tmp_path: Path) -> None:
    """`record` writes answers, and `compare` says pass with status 0 and fail with status 3."""
    file, out = tmp_path / "reference.json", tmp_path / "verdict.json"
    record = ["record", sound.url, "--model", MODEL, "--tokens", str(TOKENS), "--output", str(file)]
    recorded = CliRunner().invoke(quality, record, catch_exceptions=False)
    same = ["compare", sound.url, str(file), "--model", MODEL, "--output", str(out)]
    passed = CliRunner().invoke(quality, same, catch_exceptions=False)
    damaged = start_engine(fault="damaged_answers:1").wait_ready()
    other = CliRunner().invoke(quality, ["compare", damaged.url, str(file), "--model", MODEL], catch_exceptions=False)

    assert (0, 0, 3) == (recorded.exit_code, passed.exit_code, other.exit_code)
    assert passed.output.startswith("pass: ")
    assert other.output.startswith("fail: ")
    assert "pass" == json.loads(out.read_text())["status"]
