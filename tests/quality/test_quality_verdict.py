"""Quality verdicts on synthetic launches whose truth is known."""

from collections.abc import Callable
from datetime import UTC, datetime
from math import exp, log

import numpy as np
import pytest
from scipy.stats import t

from tokenpeak.quality.answers import Floor
from tokenpeak.quality.prompts import LONG_CONTEXT
from tokenpeak.quality.verdict import CONFIDENCE, Reference, interval, judge
from tokenpeak.records.quality import GeneratedAnswer, QualityAnswers, ScoredText, TopK
from tokenpeak.spec.quality import MARGIN_NATS

KINDS = ("arithmetic", "copying", "extraction", "recall")
NO_FLOOR = Floor(text_kl={}, answer_kl={}, regret={}, batches=1, launches=0)
Draw = Callable[[str], float]


def apart(nats: float) -> TopK:
    """A distribution over two tokens at this divergence from an even one."""
    return {1: log(0.5 + x), 2: log(0.5 - x)} if (x := _offset(nats)) else {1: log(0.5), 2: log(0.5)}


def _offset(nats: float) -> float:
    # KL(even || 0.5 ± x) = −½ log(1 − 4x²)
    return 0.5 * (1 - exp(-2 * nats)) ** 0.5 if nats > 0 else 0.0


def launch(text: Draw, answer: Draw, wrong: int = 0) -> QualityAnswers:
    """78 texts and 58 answers, each at the divergence that is drawn for its kind."""
    names = [f"passage-{n}" for n in range(30)] + [f"{kind}-{n}" for kind in KINDS for n in range(12)]
    asked = [(f"{kind}-{n}", kind) for kind in KINDS for n in range(12)]
    asked += [(f"{LONG_CONTEXT}-{n}-900", LONG_CONTEXT) for n in range(10)]
    return QualityAnswers(
        recorded_at=datetime.now(UTC),
        prompt_set=1,
        budget_tokens=60_000,
        context=2048,
        model="m",
        engine_version=None,
        batch=16,
        texts=tuple(
            ScoredText(name=name, tokens=(0, 1), scores=(apart(text(name.rpartition("-")[0])),)) for name in names
        ),
        answers=tuple(
            GeneratedAnswer(
                name=name,
                kind=kind,
                prompt_tokens=900,
                tokens=(1,),
                scores=(apart(answer(kind)),),
                text="x",
                right=place >= wrong,
            )
            for place, (name, kind) in enumerate(asked)
        ),
    )


def nothing(_: str) -> float:
    return 0.0


REFERENCE = Reference(answers=launch(nothing, nothing), floor=NO_FLOOR)


def damage(random: np.random.Generator, mean: float, only: str | None = None) -> Draw:
    """Skewed as real damage is: most of it on few prompts, on top of a floor of a few thousandths."""
    return lambda kind: float(
        random.exponential(0.001) + (random.gamma(0.7, mean / 0.7) if mean and only in (None, kind) else 0.0)
    )


def statuses(trials: int, texts: float = 0.0, answers: float = 0.0) -> list[str]:
    random = np.random.default_rng(7)
    return [
        judge(launch(damage(random, texts), damage(random, answers)), None, REFERENCE, MARGIN_NATS).status
        for _ in range(trials)
    ]


def test_the_same_passes() -> None:
    """Of 100 launches that differ from the reference by noise alone, all pass."""
    assert ["pass"] * 100 == statuses(100)


@pytest.mark.parametrize("mean", [{"texts": 0.06}, {"answers": 0.1}], ids=["prefill", "decoding"])
def test_damage_never_passes(mean: dict[str, float]) -> None:
    """Damage of some margins, in prefill or in decoding alone, fails nearly always and never passes."""
    found = statuses(60, **mean)

    assert found.count("fail") >= 57
    assert "pass" not in found


def test_damage_at_the_margin_is_rarely_decided_wrongly() -> None:
    """A truth at the margin fails in at most 3% of launches, and passes in at most 5%."""
    found = statuses(200, texts=MARGIN_NATS)

    assert found.count("fail") <= 6
    assert found.count("pass") <= 10


def test_floor_is_taken_off() -> None:
    """What the reference differs from itself is no damage."""
    names = [text.name for text in REFERENCE.answers.texts]
    floor = Floor(text_kl=dict.fromkeys(names, 0.05), answer_kl={}, regret={}, batches=1, launches=0)
    found = launch(lambda _: 0.05, nothing)

    assert "pass" == judge(found, None, Reference(answers=REFERENCE.answers, floor=floor), MARGIN_NATS).status
    assert "fail" == judge(found, None, REFERENCE, MARGIN_NATS).status


def test_too_little_is_unknown() -> None:
    """Few texts, a broken measurement, and a reference whose answers are noise give no verdict, with the reason."""
    whole = REFERENCE.answers
    few = judge(whole.model_copy(update={"texts": whole.texts[:5]}), None, REFERENCE, MARGIN_NATS)
    broken = judge(None, "out of memory", REFERENCE, MARGIN_NATS)
    flat = whole.model_copy(update={"texts": tuple(_flat(text) for text in whole.texts)})
    noise = judge(flat, None, Reference(answers=flat, floor=NO_FLOOR), MARGIN_NATS)

    assert ["unknown"] * 3 == [few.status, broken.status, noise.status]
    assert "out of memory" == broken.reason
    assert "noise" in noise.reason


def _flat(text: ScoredText) -> ScoredText:
    return text.model_copy(update={"scores": ({1: log(0.02), 2: log(0.01)},)})


def test_another_tokenizer_is_unknown() -> None:
    """A launch that takes texts apart otherwise can only be compared by tasks."""
    texts = tuple(text.model_copy(update={"tokens": (5, 1)}) for text in REFERENCE.answers.texts)
    found = judge(REFERENCE.answers.model_copy(update={"texts": texts}), None, REFERENCE, MARGIN_NATS)

    assert "unknown" == found.status
    assert "tokens" in found.reason


def test_tasks_fail_a_launch() -> None:
    """Seven answers that were right and are wrong now fail it, though divergences are small; six do not block it."""
    assert "fail" == judge(launch(nothing, nothing, wrong=7), None, REFERENCE, MARGIN_NATS).status
    assert "pass" == judge(launch(nothing, nothing, wrong=6), None, REFERENCE, MARGIN_NATS).status


def test_interval_is_students_for_normal_values() -> None:
    """For many normal values the bootstrap's interval is Student's, within a tenth of its width."""
    values = np.random.default_rng(4).normal(1.0, 0.2, 200)
    found = interval(list(values), ["one"] * len(values))
    half = t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))

    assert values.mean() - half == pytest.approx(found.low, abs=half / 10)
    assert values.mean() + half == pytest.approx(found.high, abs=half / 10)


def test_weights_are_of_kinds() -> None:
    """A kind of few prompts weighs as it is given, not by their number."""
    found = interval([0.0] * 90 + [1.0] * 10, ["short"] * 90 + ["long"] * 10, {"short": 2.0, "long": 1.0})

    assert 1 / 3 == pytest.approx(found.estimate)
