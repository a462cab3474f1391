"""Correction of predictions by the trials seen: how far they were off, and what that says about the trials to come.

The logarithm of measured ÷ predicted is taken as an offset of the whole sweep plus an effect of each alternative
chosen, each with a prior; trials narrow them by Bayes' rule. An alternative not yet seen keeps its prior's width, so
the uncertainty of a corrected prediction shrinks only where something like it was measured. Pure.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.predict.demand import objective_run
from tokenpeak.records import Config, Prediction, TrialRecord
from tokenpeak.spec.sweep import SweepSpec

Floats = NDArray[np.float64]
METRICS = ("output_tok_per_s", "ttft_s", "tpot_s", "kv_cache_tokens")

Z_80 = 1.2816
"""Half-width of a normal 80% interval in standard deviations."""

EFFECT_SD = 0.15
"""How much one alternative is thought to change the error, before it was seen."""

NOISE_SD_AT_LEAST = 0.03
"""Spread between launches of one config that no trial may argue away."""

AT_ONCE = 500
"""Corrections that are worked out together: each needs a matrix as wide as there are alternatives."""


@dataclass(frozen=True, kw_only=True)
class PredictedTrial:
    """A config that was predicted and then measured; `measured` holds the metrics that were."""

    config: Config
    prediction: Prediction
    measured: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class MetricError:
    """How the predictions of one metric compare with `n` measurements."""

    metric: str
    n: int
    median_ratio: float
    """Measured ÷ predicted."""
    mean_absolute_error: float
    """Mean of |measured ÷ predicted - 1|."""
    within_interval: float
    """Share of measurements inside the stated 80% interval."""


def measured_as_predicted(trial: TrialRecord, spec: SweepSpec) -> dict[str, float]:
    """Measured value of each metric of METRICS, in the statistic that is predicted: times are means."""
    run = objective_run(trial.runs, spec)
    values = {
        "output_tok_per_s": run.summary.output_tok_per_s if run else None,
        "ttft_s": run.summary.ttft_s.mean if run else None,
        "tpot_s": run.summary.tpot_s.mean if run else None,
        "kv_cache_tokens": float(trial.startup.kv_cache_tokens or 0),
    }
    return {name: value for name, value in values.items() if value}


def observed(trial: TrialRecord, spec: SweepSpec) -> PredictedTrial | None:
    """A trial with its prediction; None when it was not predicted or gave no objective run."""
    if trial.prediction is None or trial.status != "ok":
        return None
    measured = measured_as_predicted(trial, spec)
    return PredictedTrial(config=trial.config, prediction=trial.prediction, measured=measured) if measured else None


def _predicted(prediction: Prediction, metric: str) -> float | None:
    value = getattr(prediction, metric)
    return float(value) if value else None


def errors(observations: Iterable[PredictedTrial]) -> tuple[MetricError, ...]:
    """The error of each metric that was both predicted and measured, in the order of METRICS."""
    pairs: dict[str, list[tuple[float, float]]] = {metric: [] for metric in METRICS}
    for one in observations:
        for metric in METRICS:
            predicted, measured = _predicted(one.prediction, metric), one.measured.get(metric)
            if predicted and measured:
                width = one.prediction.uncertainty or 0.0
                pairs[metric].append((measured / predicted, width))
    return tuple(
        MetricError(
            metric=metric,
            n=len(ratios),
            median_ratio=float(np.median([ratio for ratio, _ in ratios])),
            mean_absolute_error=sum(abs(ratio - 1) for ratio, _ in ratios) / len(ratios),
            within_interval=sum(1 / (1 + width) <= ratio <= 1 + width for ratio, width in ratios) / len(ratios),
        )
        for metric, ratios in pairs.items()
        if ratios
    )


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Error of each metric as the trials so far show it; without trials it changes nothing."""

    features: tuple[tuple[str, str], ...] = ()
    """The alternatives seen, (axis, name)."""
    mean: Mapping[str, Floats]
    covariance: Mapping[str, Floats]
    noise_sd: Mapping[str, float]

    def factor(self, config: Config, metric: str) -> tuple[float, float] | None:
        """(measured ÷ predicted to expect, half-width of its 80% interval as a ratio), or None without trials."""
        if metric not in self.mean:
            return None
        row = np.array(_row(config, self.features))
        unseen = sum((axis, name) not in self.features for axis, name in config.choices.items())
        spread = float(row @ self.covariance[metric] @ row)
        variance = spread + unseen * EFFECT_SD**2 + self.noise_sd[metric] ** 2
        return math.exp(float(row @ self.mean[metric])), math.exp(Z_80 * math.sqrt(variance)) - 1

    def apply(self, config: Config, prediction: Prediction) -> Prediction:
        """The prediction with each metric corrected and the uncertainty that the trials leave."""
        changes: dict[str, object] = {}
        for metric in METRICS:
            predicted, factor = _predicted(prediction, metric), self.factor(config, metric)
            if predicted is None or factor is None:
                continue
            value = predicted * factor[0]
            changes[metric] = round(value) if metric == "kv_cache_tokens" else value
        if factor := self.factor(config, "output_tok_per_s"):
            changes["uncertainty"] = factor[1]
        return prediction.model_copy(update=changes)


def _row(config: Config, features: Sequence[tuple[str, str]]) -> list[float]:
    return [1.0, *(1.0 if config.choices.get(axis) == name else 0.0 for axis, name in features)]


@dataclass(frozen=True)
class _Known:
    """Trials as data of one metric: a row of the design each, the logarithm of measured ÷ predicted, and the width."""

    places: list[int]
    """Which of the trials they are."""
    design: Floats
    target: Floats
    widths: Floats


def _known(observations: Sequence[PredictedTrial], features: Sequence[tuple[str, str]], metric: str) -> _Known:
    rows = [
        (place, _row(one.config, features), math.log(measured / predicted), one.prediction.uncertainty or 0.5)
        for place, one in enumerate(observations)
        if (predicted := _predicted(one.prediction, metric)) and (measured := one.measured.get(metric))
    ]
    return _Known(
        [place for place, *_ in rows],
        np.array([row for _, row, _, _ in rows]),
        np.array([target for _, _, target, _ in rows]),
        np.array([width for *_, width in rows]),
    )


def _features(observations: Sequence[PredictedTrial]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({choice for one in observations for choice in one.config.choices.items()}))


def _regressions(
    grams: Floats, moments: Floats, squares: Floats, count: int, widest: Floats
) -> tuple[Floats, Floats, Floats]:
    """Weights, their covariance and the noise of several regressions, each of `count` trials and with its own sums."""
    size = grams.shape[-1]
    priors = np.zeros_like(grams)
    priors[:, range(size), range(size)] = 1 / EFFECT_SD**2
    priors[:, 0, 0] = (np.log1p(widest) / Z_80) ** -2
    sd = np.full(len(grams), 2 * NOISE_SD_AT_LEAST)
    # The noise is read off what the effects leave over; a few rounds settle it.
    for _ in range(8):
        scale = sd[:, None] ** 2
        posterior = np.linalg.inv(priors + grams / scale[:, None])
        weights = np.einsum("ijk,ik->ij", posterior, moments) / scale
        left = squares - 2 * (weights * moments).sum(axis=1) + np.einsum("ij,ijk,ik->i", weights, grams, weights)
        sd = np.maximum(NOISE_SD_AT_LEAST, np.sqrt(np.maximum(left, 0.0) / count))
    return weights, posterior, sd


def learn(observations: Sequence[PredictedTrial]) -> Correction:
    """The correction that these trials call for."""
    features = _features(observations)
    mean: dict[str, Floats] = {}
    covariance: dict[str, Floats] = {}
    noise: dict[str, float] = {}
    for metric in METRICS:
        known = _known(observations, features, metric)
        if not known.places:
            continue
        x, y = known.design, known.target
        weights, posterior, sd = _regressions(
            (x.T @ x)[None], (x.T @ y)[None], np.array([y @ y]), len(y), np.array([known.widths.max()])
        )
        mean[metric], covariance[metric], noise[metric] = weights[0], posterior[0], float(sd[0])
    return Correction(features=features, mean=mean, covariance=covariance, noise_sd=noise)


def learn_without_each(observations: Sequence[PredictedTrial]) -> Iterator[Correction]:
    """For each trial the correction that all the others call for, at the cost of a few rather than of as many.

    An alternative that only the trial itself has keeps its prior, which is what one not seen has.
    """
    features = _features(observations)
    whole = learn(observations)
    solved: dict[str, dict[int, tuple[Floats, Floats, float]]] = {}
    for metric in METRICS:
        known = _known(observations, features, metric)
        solved[metric] = {}
        if not known.places:
            continue
        # Without what a trial does not say, all is as it is with it.
        silent = set(range(len(observations))).difference(known.places)
        solved[metric] = dict.fromkeys(silent, (whole.mean[metric], whole.covariance[metric], whole.noise_sd[metric]))
        for first in range(0, len(known.places) if len(known.places) > 1 else 0, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            x, y = known.design[part], known.target[part]
            weights, posterior, sd = _regressions(
                known.design.T @ known.design - x[:, :, None] * x[:, None, :],
                known.design.T @ known.target - x * y[:, None],
                known.target @ known.target - y**2,
                len(known.places) - 1,
                np.array([np.delete(known.widths, first + place).max() for place in range(len(y))]),
            )
            solved[metric] |= dict(
                zip(known.places[part], zip(weights, posterior, sd.tolist(), strict=True), strict=True)
            )
    for place in range(len(observations)):
        own = {metric: solved[metric][place] for metric in METRICS if place in solved[metric]}
        yield Correction(
            features=features,
            mean={metric: weights for metric, (weights, _, _) in own.items()},
            covariance={metric: posterior for metric, (_, posterior, _) in own.items()},
            noise_sd={metric: sd for metric, (_, _, sd) in own.items()},
        )
