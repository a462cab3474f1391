"""Quality verdicts on synthetic launches whose truth is known, and against SciPy's tests."""

from datetime import UTC, datetime

import numpy as np
import pytest
from scipy.stats import binomtest, t

from tokenpeak.quality.verdict import CONFIDENCE, FEWEST_PROMPTS, interval, judge, paired_test
from tokenpeak.records.quality import PromptQuality, QualityMeasurement, QualityReference, ReferenceAnswer, TopK
from tokenpeak.spec.quality import MARGIN_NATS

KINDS = ("arithmetic", "copying", "extraction", "recall")
PROMPTS = 48


def launch(
    random: np.random.Generator,
    *,
    kl: float = 0.0,
    decode: float = 0.0,
    prompts: int = PROMPTS,
    wrong: int = 0,
    only: str | None = None,
) -> QualityMeasurement:
    """Prompts with a floor of about 0.002 nats and, on top, damage of these means; both are skewed as real ones are."""

    def draw(mean: float, kind: str) -> float:
        floor = random.exponential(0.002)
        return float(floor + (random.gamma(0.7, mean / 0.7) if mean and only in (None, kind) else 0.0))

    return QualityMeasurement(
        prompts=tuple(
            PromptQuality(
                name=f"p{number}",
                kind=KINDS[number % len(KINDS)],
                tokens=24,
                kl_nats=draw(kl, KINDS[number % len(KINDS)]),
                top1_agreement=1.0,
                log_ratio_nats=0.0,
                decode_kl_nats=draw(decode, KINDS[number % len(KINDS)]),
                decode_regret_nats=draw(decode, KINDS[number % len(KINDS)]),
                same_tokens=1.0,
                answer_text="x",
                right=number >= wrong,
            )
            for number in range(prompts)
        )
    )


def against(floor: QualityMeasurement, covered: float = 0.95) -> QualityReference:
    score: TopK = {1: float(np.log(covered))}
    answer = ReferenceAnswer(
        name="p0",
        kind="copying",
        text="t",
        right_answer="x",
        prompt_tokens=(1,),
        answer_tokens=(1,),
        answer_text="x",
        scores=(score,),
    )
    return QualityReference(
        recorded_at=datetime.now(UTC), model="m", engine_version=None, answers=(answer,), floor=floor
    )


def statuses(trials: int, **damage: float) -> list[str]:
    random = np.random.default_rng(7)
    return [
        judge(launch(random, **damage), against(launch(random)), MARGIN_NATS).status  # type: ignore[arg-type]
        for _ in range(trials)
    ]


def test_the_same_passes() -> None:
    """Of 200 launches that differ from the reference by noise alone, 99% pass and none fails."""
    found = statuses(200)

    assert found.count("pass") >= 198
    assert "fail" not in found


@pytest.mark.parametrize("damage", [{"kl": 0.1}, {"decode": 0.1}], ids=["prefill", "decoding"])
def test_damage_never_passes(damage: dict[str, float]) -> None:
    """Damage of five margins, in prefill or in decoding alone, fails nearly always and never passes."""
    found = statuses(100, **damage)

    assert found.count("fail") >= 95
    assert "pass" not in found


def test_damage_of_two_margins_does_not_pass() -> None:
    """0.04 nats fail, or are unknown; they do not pass."""
    assert "pass" not in statuses(100, kl=0.04)


def test_damage_at_the_margin_is_rarely_failed_or_passed() -> None:
    """A truth at the margin is decided wrongly in at most 5% of launches, on either side."""
    found = statuses(200, kl=MARGIN_NATS)

    assert found.count("fail") <= 10
    assert found.count("pass") <= 10


def test_damage_to_one_kind_is_found() -> None:
    """A quarter of the prompts damaged fails, as kinds are resampled apart."""
    random = np.random.default_rng(9)
    verdict = judge(launch(random, kl=2.0, only="recall"), against(launch(random)), MARGIN_NATS)

    assert "fail" == verdict.status


def test_too_little_is_unknown() -> None:
    """Few prompts, a broken measurement, and a reference whose answers are noise give no verdict, with the reason."""
    random = np.random.default_rng(3)
    floor = launch(random)
    few = judge(launch(random, prompts=FEWEST_PROMPTS - 1), against(floor), MARGIN_NATS)
    broken = judge(QualityMeasurement(problem="out of memory"), against(floor), MARGIN_NATS)
    noise = judge(launch(random), against(floor, covered=0.02), MARGIN_NATS)

    assert ["unknown"] * 3 == [few.status, broken.status, noise.status]
    assert "needs 24" in few.reason
    assert "out of memory" == broken.reason
    assert "noise" in noise.reason


def test_tasks_fail_a_launch() -> None:
    """Seven answers that were right and are wrong now fail it, though divergences are small; six do not block it."""
    random = np.random.default_rng(3)
    reference = against(launch(random))

    assert "fail" == judge(launch(random, wrong=7), reference, MARGIN_NATS).status
    assert "pass" == judge(launch(random, wrong=6), reference, MARGIN_NATS).status


@pytest.mark.parametrize(("worse", "better"), [(0, 0), (3, 0), (7, 0), (7, 2), (2, 7), (20, 20)])
def test_paired_test_is_the_binomial_test(worse: int, better: int) -> None:
    """McNemar's exact test is SciPy's one-sided binomial test."""
    expected = binomtest(worse, worse + better, alternative="greater").pvalue if worse + better else 1.0

    assert expected == pytest.approx(paired_test(worse, better))


def test_interval_is_students_for_normal_values() -> None:
    """For many normal values the bootstrap's interval is Student's, within a tenth of its width."""
    values = np.random.default_rng(4).normal(1.0, 0.2, 200)
    found = interval(list(values), ["one"] * len(values))
    half = t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))

    assert values.mean() - half == pytest.approx(found.low, abs=half / 10)
    assert values.mean() + half == pytest.approx(found.high, abs=half / 10)
