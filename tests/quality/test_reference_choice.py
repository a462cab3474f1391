"""What can change answers, which config is the reference, and what the next launch is measured for; no engine."""

from datetime import UTC, datetime

import pytest

from tokenpeak.errors import PlanError
from tokenpeak.quality.sweep_quality import (
    MeasuredLaunch,
    SweepAnswers,
    choose_reference,
    with_reference_first,
)
from tokenpeak.records import Config, ModelName, Plan, PlannedConfig
from tokenpeak.records.quality import QualityAnswers, QualityMeasurement, QualityPasses
from tokenpeak.spec.quality import QualitySpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flag_effects import answers_key

MODEL = ModelName(name="meta-llama/Llama-3.1-8B-Instruct", served_name="m")
SPEC = {
    "name": "x",
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
            "levels": [{"concurrency": 4, "requests": 24}],
        }
    ],
}


def config(name: str, **flags: object) -> Config:
    return Config(config_id=name, name=name, model=MODEL, flags=flags)  # type: ignore[arg-type]


def plan(*configs: Config) -> Plan:
    planned = [
        PlannedConfig(config=each, config_class=each.config_id, answers=answers_key(each, "0.32.0")) for each in configs
    ]
    return Plan(hardware="1x H100", nodes=("a",), theoretical=len(planned), feasible=tuple(planned))


@pytest.mark.parametrize(
    "flags",
    [
        {"max_num_seqs": 8, "enforce_eager": True, "tensor_parallel_size": 2, "enable_prefix_caching": False},
        {"kv_cache_dtype": "auto"},
        {"quantization": None},
    ],
)
def test_scheduling_and_defaults_change_no_answers(flags: dict[str, object]) -> None:
    """Flags of scheduling, memory and parallelism, and flags at their default, leave answers alike."""
    assert answers_key(config("a"), "0.32.0") == answers_key(config("b", **flags), "0.32.0")


@pytest.mark.parametrize(
    "flags",
    [
        {"quantization": "fp8"},
        {"kv_cache_dtype": "fp8"},
        {"speculative_config": '{"method": "ngram"}'},
        {"attention_backend": "TRITON_ATTN"},
        {"hf_overrides": "{}", "rope_theta": 5.0},
        {"a_flag_that_nobody_knows": 1},
    ],
)
def test_whatever_else_may_change_answers(flags: dict[str, object]) -> None:
    """Precision, speculation, attention, and any flag that is not known to be harmless make a difference."""
    assert answers_key(config("a"), "0.32.0") != answers_key(config("b", **flags), "0.32.0")


def test_reference_is_the_one_of_higher_precision() -> None:
    """Of production's and the defaults' the higher precision is the reference; alike, it is what runs now."""
    defaults, eight = config("defaults"), config("production", quantization="fp8")

    found = choose_reference(plan(eight, defaults), QualitySpec())
    assert found is not None
    assert "defaults" == found.planned.config.name
    alike = choose_reference(plan(defaults, config("production", max_num_seqs=9)), QualitySpec())
    assert alike is not None
    assert ("production", "what runs now") == (alike.planned.config.name, alike.why)


def test_declared_reference() -> None:
    """A config's name is taken as declared, an unknown one is refused with a suggestion, a file is no config."""
    both = plan(config("defaults"), config("careful", dtype="float32"))
    found = choose_reference(both, QualitySpec(reference="careful"))

    assert found is not None
    assert "careful" == found.planned.config.name
    with pytest.raises(PlanError, match="careful"):
        choose_reference(both, QualitySpec(reference="carefull"))
    assert choose_reference(both, QualitySpec(reference="answers.json")) is None


def test_reference_is_launched_first() -> None:
    """A reference that is no baseline becomes one, where the plan has anything to compare."""
    spec = SweepSpec.model_validate({**SPEC, "search": {"baseline": []}})
    several, notes = with_reference_first(spec, [plan(config("eight", quantization="fp8"), config("plain"))])
    same, none = with_reference_first(spec, [plan(config("a", max_num_seqs=1), config("b"))])

    assert ("plain",) == several.search.baseline
    assert "compared with those of plain" in notes[0]
    assert (spec, ()) == (same, none)


def launch(name: str, *, good: bool = True) -> MeasuredLaunch:
    answers = QualityAnswers(
        recorded_at=datetime.now(UTC),
        prompt_set=1,
        budget_tokens=60_000,
        context=2048,
        model="m",
        engine_version=None,
        batch=16,
        texts=(),
        answers=(),
    )
    return MeasuredLaunch(
        trial_id="0001-abc",
        config_id=name,
        measurement=QualityMeasurement(problem=None if good else "out of memory"),
        passes=QualityPasses(passes=(answers,)) if good else None,
    )


def test_which_launches_are_measured() -> None:
    """One of each group that answers alike, two of the reference, and a second one of what broke off."""
    made = plan(
        config("defaults"), config("wide", max_num_seqs=512), config("eight", quantization="fp8", max_model_len=900)
    )
    answers = SweepAnswers(made, QualitySpec())
    first = answers.job("defaults", [])

    assert first is not None
    assert (2, 900) == (first.passes, first.context)
    again = answers.job("wide", [launch("defaults")])
    assert again is not None
    assert 1 == again.passes
    assert answers.job("defaults", [launch("defaults"), launch("wide")]) is None
    assert answers.job("eight", [launch("eight", good=False)]) is not None
    assert answers.job("eight", [launch("eight", good=False)] * 2) is None
    assert answers.job("eight", [launch("eight")]) is None


def test_no_verdict_without_the_reference() -> None:
    """What was measured before its reference, or whose reference broke off, is unknown with the reason."""
    answers = SweepAnswers(plan(config("defaults"), config("eight", quantization="fp8")), QualitySpec())
    (early,) = answers.verdicts([launch("eight")])
    broken = answers.verdicts([launch("eight"), launch("defaults", good=False)])

    assert "unknown" == early.verdict.status
    assert "not measured yet" in early.verdict.reason
    assert {"unknown"} == {found.verdict.status for found in broken}
    assert all("out of memory" in found.verdict.reason for found in broken)


def of_model(name: str, model: str) -> Config:
    """A config that serves a model of this name."""
    return config(name).model_copy(update={"model": ModelName(name=model, served_name="m")})


def test_another_model_is_compared_with_nothing() -> None:
    """Answers of a smaller model are its own: no launch is measured for it, and it has no verdict."""
    small = of_model("small", "meta-llama/Llama-3.2-3B-Instruct")
    beside = SweepAnswers(plan(config("production"), config("fp8", kv_cache_dtype="fp8"), small), QualitySpec())
    alone = SweepAnswers(plan(config("large"), small), QualitySpec())

    assert beside.job("fp8", []) is not None
    assert beside.job("small", []) is None
    assert alone.reference is None
    assert not alone.is_needed
