"""Candidates: what a sweep's launches make of its configs before anything is decided."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from archive_factory import config_of, make_archive, sweep_spec
from tokenpeak.ranking.candidates import Candidates, Launch, decided, launches_of_records, launches_of_rows
from tokenpeak.ranking.comparisons import Candidate
from tokenpeak.ranking.decision_words import headline, plain
from tokenpeak.records import ModelName, Plan, PlannedConfig
from tokenpeak.report import open_archive
from tokenpeak.spec.slo import Slo

CONFIGS = {
    "defaults": config_of({}, name="defaults"),
    "more": config_of({"max_num_seqs": 512}, name="more"),
    "most": config_of({"max_num_seqs": 1024, "max_num_batched_tokens": 4096}, name="most"),
    "fp8": config_of({"kv_cache_dtype": "fp8"}, name="fp8"),
    "draft": config_of({"speculative_config": '{"method": "ngram"}'}, name="draft"),
}


def plan(classes: dict[str, str] | None = None) -> Plan:
    """A plan of these configs; a class is a config's own unless it is given."""
    named = classes or {}
    return Plan(
        hardware="GPU",
        nodes=("a",),
        theoretical=len(CONFIGS),
        feasible=tuple(
            PlannedConfig(config=config, config_class=named.get(name, name)) for name, config in CONFIGS.items()
        ),
    )


def launch(name: str, value: float = 100.0, **how: Any) -> Launch:
    """One launch of a config."""
    return Launch(config_id=CONFIGS[name].config_id, node="a", value=value, **{"slo_met": None, **how})


def made(
    launches: Sequence[Launch], planned: Plan | None = None, quality: dict[str, str] | None = None
) -> dict[str, Candidate]:
    """The candidates by their config's name."""
    spec = sweep_spec()
    spec = spec.model_copy(update={"slo": Slo(ttft_p95_ms=500)})
    answers = {CONFIGS[name].config_id: status for name, status in (quality or {}).items()}
    found = decided(spec, launches, plan=planned or plan(), quality=answers, engine_version="0.32.0")
    names = {config.config_id: name for name, config in CONFIGS.items()}
    return {names[each.config]: each for each in found.all}


def test_configs_of_one_class_are_one_candidate() -> None:
    """With the launches of all, under what runs now where it is of the class, else under the fewest changes."""
    with_current = made([launch("more", 1), launch("defaults", 2)], plan({"defaults": "one", "more": "one"}))
    without = made([launch("most", 1), launch("more", 2)], plan({"most": "one", "more": "one"}))

    assert {"defaults": [1, 2]} == {name: list(each.launches) for name, each in with_current.items()}
    assert {"more": [1, 2]} == {name: list(each.launches) for name, each in without.items()}
    assert with_current["defaults"].is_current


def held(within: int, requests: int = 100, *, met: bool = True) -> dict[str, Any]:
    """A launch's requests within the limit."""
    return {"slo_met": met, "within_limits": {"ttft_s_p95": within}, "requests": requests}


@pytest.mark.parametrize(
    ("launches", "hold"),
    [
        ([held(100)], "held"),
        ([held(97)], "not_proven"),
        # What one launch's requests do not show, those of three do.
        ([held(98), held(98), held(98)], "held"),
        ([held(100), held(90, met=False)], "broken"),
        ([{"slo_met": True}], "not_proven"),
        ([{"slo_met": None}], "not_proven"),
    ],
)
def test_an_slo_is_held_with_confidence_by_all_launches(launches: list[dict[str, Any]], hold: str) -> None:
    """95%, by the requests of all launches together; a launch that broke it is enough to break it."""
    assert hold == made([launch("defaults", **each) for each in launches])["defaults"].hold


@pytest.mark.parametrize(
    ("name", "status", "answers"),
    [
        ("more", None, "same"),
        ("fp8", None, "not_compared"),
        ("draft", None, "not_compared"),
        ("fp8", "pass", "passed"),
        ("fp8", "fail", "failed"),
        ("fp8", "unknown", "not_compared"),
        ("more", "fail", "failed"),
    ],
)
def test_answers_are_the_same_passed_or_not_compared(name: str, status: str | None, answers: str) -> None:
    """By precision and speculation beside what runs now, and by the verdict where there is one."""
    quality = {name: status} if status else None

    assert answers == made([launch("defaults"), launch(name)], quality=quality)[name].answers


def test_records_and_rows_give_the_same_decision(tmp_path: Path) -> None:
    """What the terminal decides by is what the site decides by."""
    archive = make_archive(
        tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 32, 64]}, replicates=2, seconds=3
    )
    view = open_archive(archive.path)
    (hardware,) = view.hardware
    records = launches_of_records(view.spec, archive.trials())
    rows = launches_of_rows(view.spec, view.trials.iter_rows(named=True), view.runs.iter_rows(named=True))
    how: dict[str, Any] = {"plan": view.plan_for(hardware), "quality": {}, "engine_version": "0.32.0"}

    assert decided(view.spec, records, **how).all == decided(view.spec, rows, **how).all


LARGE, SMALL, NARROW = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
    "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8",
)


def of_models(*names: str, current: bool = False) -> Candidates:
    """The decision among configs that serve these models, the first the slowest; it runs now, or nothing does."""
    configs = [
        config_of({}, name="production" if current and not place else name).model_copy(
            update={"config_id": str(place), "model": ModelName(name=name, served_name="m")}
        )
        for place, name in enumerate(names)
    ]
    planned = tuple(PlannedConfig(config=each, config_class=each.config_id) for each in configs)
    own = Plan(hardware="GPU", nodes=("a",), theoretical=len(configs), feasible=planned)
    launches = [
        Launch(config_id=each.config_id, node="a", value=100.0 * (place + 1) + again, slo_met=None)
        for place, each in enumerate(configs)
        for again in range(3)
    ]
    spec = sweep_spec()
    spec = spec.model_copy(update={"search": spec.search.model_copy(update={"baseline": ("production",)})})
    return decided(spec, launches, plan=own, quality={}, engine_version="0.32.0")


def test_a_smaller_model_is_no_setting_of_what_runs_now() -> None:
    """Twice as fast, it is kept back as another model, and what runs now is kept."""
    found = of_models(LARGE, SMALL, current=True)

    assert ["same", "another_model"] == [each.answers for each in found.all]
    assert ("keep", "0") == (found.decision.outcome, found.decision.config)


def test_a_checkpoint_in_another_format_is_the_same_model() -> None:
    """Its answers are to be compared; it is no other model."""
    assert ["same", "not_compared"] == [each.answers for each in of_models(LARGE, NARROW, current=True).all]


@pytest.mark.parametrize(
    "names",
    [("acme/small-1b", "acme/large-8b"), (LARGE, "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"), (LARGE, "acme/small-1b")],
)
def test_a_model_of_unknown_shape_is_not_compared(names: tuple[str, str]) -> None:
    """Of one shape or of a shape that nobody knows: answers under another name were not compared, so it is not run."""
    found = of_models(*names)

    assert ["same", "not_compared"] == [each.answers for each in found.all]
    assert "1" != found.decision.config


def test_a_sweep_over_models_recommends_none() -> None:
    """With nothing that runs now, no model is a setting of another, and the headline says so."""
    decision = of_models(LARGE, SMALL).decision

    assert ("not_known", None) == (decision.outcome, decision.config)
    assert "compares models, not settings" in plain(headline(decision, "what runs now"), {})
