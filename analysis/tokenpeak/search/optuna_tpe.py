"""Optuna's tree-structured Parzen estimator behind the same interface, to compare with in replays.

The study is rebuilt from the history for each proposal. Axes are categorical, as Optuna is usually given vLLM flags;
a combination outside of the plan, or already tried, is reported as pruned, and Optuna gives another.
"""

import math
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import optuna

from tokenpeak.metrics import Direction
from tokenpeak.records import Plan
from tokenpeak.search.history import Finished, Outcome, Proposal
from tokenpeak.search.space import space_of
from tokenpeak.spec.search import SearchSpec

ASKED_AT_MOST = 200
STARTUP_TRIALS = 4
"""Random trials before the estimator speaks, where it is set for a small budget."""


class OptunaTpe:
    """TPE over the plan's axes. Failed launches are reported with the worst value seen, as is usual.

    `as_shipped` leaves Optuna's own settings, which tuners of vLLM use: ten random trials first, each axis by itself.
    """

    def __init__(self, search: SearchSpec, plan: Plan, *, direction: Direction, as_shipped: bool) -> None:
        self._settings: dict[str, Any] = (
            {} if as_shipped else {"n_startup_trials": STARTUP_TRIALS, "multivariate": True}
        )
        self._search = search
        self._space = space_of(plan)
        self._sign = -1.0 if direction == "lower" else 1.0
        rows = [tuple(int(level) for level in row) for row in self._space.levels]
        self._point_at = {row: point for point, row in enumerate(rows)}
        self._rows = rows
        self._domain: dict[str, optuna.distributions.BaseDistribution] = {
            axis.name: optuna.distributions.CategoricalDistribution(tuple(range(len(axis.values))))
            for axis in self._space.axes
        }

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Finished:
        """The next config that TPE asks for."""
        tried = {outcome.config_id for outcome in history} | {config_id for config_id, _ in pending}
        limit = min(self._search.trials or self._space.size, self._space.size)
        if len(tried) >= limit:
            return Finished(reason="all trials are made")
        study = self._study(history)
        for _ in range(ASKED_AT_MOST):
            trial = study.ask(self._domain)
            point = self._point_at.get(tuple(trial.params[axis.name] for axis in self._space.axes))
            if point is not None and self._space.configs[point] not in tried:
                return Proposal(config_id=self._space.configs[point], replicate=0, reason="asked for by Optuna")
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        left = next(config_id for config_id in self._space.configs if config_id not in tried)
        return Proposal(config_id=left, replicate=0, reason="Optuna repeats itself; the first that is left")

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """Each config once."""
        return len({outcome.config_id for outcome in history})

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The config with the best value."""
        feasible = [outcome for outcome in history if outcome.feasible]
        return max(feasible, key=lambda outcome: self._sign * (outcome.value or 0.0)).config_id if feasible else None

    def _study(self, history: Sequence[Outcome]) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            seed = self._search.seed * 1000 + len(history)
            sampler = optuna.samplers.TPESampler(seed=seed, **self._settings)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        values = [self._sign * math.log(outcome.value) for outcome in history if outcome.feasible and outcome.value]
        worst = min(values, default=0.0)
        for outcome in history:
            if not outcome.about_the_config:
                continue
            row = self._rows[self._space.point_of[outcome.config_id]]
            value = self._sign * math.log(outcome.value) if outcome.feasible and outcome.value else worst
            params = {axis.name: level for axis, level in zip(self._space.axes, row, strict=True)}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=self._domain, value=value))
        return study
