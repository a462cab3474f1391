"""Correction of predictions by the trials seen: how far they were off, and what that says about the trials to come.

The logarithm of measured ÷ predicted is taken as an offset of the whole sweep plus an effect of each alternative
chosen, each with a prior; trials narrow them by Bayes' rule. An alternative not yet seen keeps its prior's width, so
the uncertainty of a corrected prediction shrinks only where something like it was measured. Pure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.metrics import with_derived
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
    """Measured value of each metric of METRICS, as it is predicted: throughput of the whole load, means of times."""
    run = objective_run(trial.runs, spec)
    speed = run.summary.output_tok_per_s if run else None
    if run is not None and run.summary.steady_waves is not None:
        speed = with_derived(run.summary.model_dump(include={"output_tokens", "duration_s"}))["whole_output_tok_per_s"]
    values = {
        "output_tok_per_s": speed,
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


def _regression(x: Floats, y: Floats, widest: float) -> tuple[Floats, Floats, float]:
    """Weights, their covariance and the noise of a regression of `y`, the logarithms of measured ÷ predicted."""
    prior = np.diag([(np.log1p(widest) / Z_80) ** -2, *(1 / EFFECT_SD**2,) * (x.shape[1] - 1)])
    gram, moment = x.T @ x, x.T @ y
    sd = 2 * NOISE_SD_AT_LEAST
    # The noise is read off what the effects leave over; a few rounds settle it.
    for _ in range(8):
        posterior = np.asarray(np.linalg.inv(prior + gram / sd**2), np.float64)
        weights = posterior @ moment / sd**2
        left = float(y @ y - 2 * weights @ moment + weights @ gram @ weights)
        sd = max(NOISE_SD_AT_LEAST, math.sqrt(max(left, 0.0) / len(y)))
    return weights, posterior, sd


def learn(observations: Sequence[PredictedTrial]) -> Correction:
    """The correction that these trials call for."""
    features = tuple(sorted({choice for one in observations for choice in one.config.choices.items()}))
    mean: dict[str, Floats] = {}
    covariance: dict[str, Floats] = {}
    noise: dict[str, float] = {}
    for metric in METRICS:
        rows = [
            (_row(one.config, features), math.log(measured / predicted), one.prediction.uncertainty or 0.5)
            for one in observations
            if (predicted := _predicted(one.prediction, metric)) and (measured := one.measured.get(metric))
        ]
        if rows:
            design, target, widths = zip(*rows, strict=True)
            mean[metric], covariance[metric], noise[metric] = _regression(
                np.array(design), np.array(target), max(widths)
            )
    return Correction(features=features, mean=mean, covariance=covariance, noise_sd=noise)
