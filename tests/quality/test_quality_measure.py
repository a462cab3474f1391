"""The quality measurement over HTTP on simulated engines: sound, damaged, and such that cannot be measured."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.quality.conftest import TOKENS
from tests.sim.running_engine import MODEL, RunningEngine, StartEngine

from tokenpeak.cli.quality import quality
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.target import Server
from tokenpeak.quality.measure import ANSWER_TOKENS, is_right, measure, record_reference
from tokenpeak.quality.prompts import built_in_prompts
from tokenpeak.quality.verdict import judge
from tokenpeak.records.quality import QualityReference
from tokenpeak.spec.quality import MARGIN_NATS


def test_the_same_engine_agrees(sound: RunningEngine, reference: QualityReference) -> None:
    """An engine agrees with its own answers, token by token, and passes."""
    found = measure(Server(sound.url), MODEL, reference)

    assert "pass" == judge(found, reference, MARGIN_NATS).status
    assert {1.0} == {prompt.top1_agreement for prompt in found.prompts}
    assert {1.0} == {prompt.same_tokens for prompt in found.prompts}


def test_damaged_engine_fails(start_engine: StartEngine, reference: QualityReference) -> None:
    """An engine whose log-probabilities are wrong by half a nat fails; the likeliest tokens differ."""
    damaged = start_engine(fault="damaged_answers:0.5").wait_ready()
    verdict = judge(measure(Server(damaged.url), MODEL, reference), reference, MARGIN_NATS)

    assert "fail" == verdict.status
    assert verdict.top1_agreement is not None
    assert verdict.top1_agreement < 0.9


def test_budget_bounds_the_tokens(reference: QualityReference) -> None:
    """A measurement processes about the tokens of its budget, and no more."""
    assert TOKENS / 2 < reference.floor.tokens <= TOKENS
    assert {ANSWER_TOKENS} == {len(answer.answer_tokens) for answer in reference.answers}


def test_prompts_beyond_the_context_are_left_out(start_engine: StartEngine, reference: QualityReference) -> None:
    """A launch with a shorter context is measured on the prompts that it can take, and names the others."""
    short = start_engine("--max-model-len", "256").wait_ready()
    found = measure(Server(short.url), MODEL, reference)

    assert "pass" == judge(found, reference, MARGIN_NATS).status
    assert found.left_out
    assert all(name.startswith("long_context") for name in found.left_out)


def test_engine_that_breaks_is_unknown(start_engine: StartEngine, reference: QualityReference) -> None:
    """An engine that answers some requests with an error gives no verdict, and the reason."""
    broken = start_engine(fault="error_500:9").wait_ready()
    found = measure(Server(broken.url), MODEL, reference)

    assert () == found.prompts
    assert "500" in (found.problem or "")
    assert "unknown" == judge(found, reference, MARGIN_NATS).status


def test_model_that_is_not_served(sound: RunningEngine) -> None:
    """A reference of a model that the server does not have is an error that names it."""
    with pytest.raises(LoadError, match="does not serve other"):
        record_reference(Server(sound.url), "other", tokens=TOKENS)


def test_commands(start_engine: StartEngine, sound: RunningEngine, tmp_path: Path) -> None:
    """`record` writes a reference, and `compare` says pass with status 0 and fail with status 3."""
    file = tmp_path / "reference.json"
    record = ["record", sound.url, "--model", MODEL, "--tokens", str(TOKENS), "--output", str(file)]
    recorded = CliRunner().invoke(quality, record, catch_exceptions=False)
    same = CliRunner().invoke(quality, ["compare", sound.url, str(file), "--model", MODEL], catch_exceptions=False)
    damaged = start_engine(fault="damaged_answers:1").wait_ready()
    other = CliRunner().invoke(quality, ["compare", damaged.url, str(file), "--model", MODEL], catch_exceptions=False)

    assert (0, 0, 3) == (recorded.exit_code, same.exit_code, other.exit_code)
    assert same.output.startswith("pass: ")
    assert other.output.startswith("fail: ")


def test_prompts_are_fixed() -> None:
    """The same set each time, of 48 prompts with names of their own, and right answers that the text goes on to."""
    prompts = built_in_prompts(900)

    assert built_in_prompts(900) == prompts
    assert 48 == len({prompt.name for prompt in prompts})
    assert 700 < len(prompts[-1].text) < 1000
    for prompt in prompts:
        if prompt.kind in ("extraction", "recall", "long_context"):
            assert prompt.answer.strip() in prompt.text


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [(" Oslo.\n", " Oslo", True), ("42\n", "42", True), ("421", "42", False), ("Oslo", "Rome", False)],
)
def test_right_answers(text: str, right: str, *, expected: bool) -> None:
    """An answer is right where it begins with the right one and does not go on as another word or number."""
    assert expected == is_right(text, right)
