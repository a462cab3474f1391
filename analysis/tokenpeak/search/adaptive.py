"""Adaptive search: the next trial has the highest acquisition under the posterior of all trials so far.

Screening starts with the baselines. Then it launches the config with the largest expected gain of the best, which may
be the second launch of a good config when launches are noisy. Once a config has failed and there is a prediction, it
launches the config that is most likely as good as the best, the launch after it included. Screening ends when the
trials are used up or no untried config has a fair chance of being notably better. Finalists are then launched again, in
randomized blocks, so that the choice rests on launches that did not select the finalists. The holdout run measures the
chosen config on fresh requests.

There is no search state: each proposal is computed from the history, so a resumed sweep continues as if it had not been
interrupted. Trials that run now count as made, with an unknown result. Launching dominates, so a launch always measures
its objective; an early stop saves the rest of its load.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean

import numpy as np

from tokenpeak.metrics import Direction
from tokenpeak.ranking.intervals import variance
from tokenpeak.records import TRANSIENT_CAUSES, Plan
from tokenpeak.search.anchors import Anchors, launches_of
from tokenpeak.search.feasibility import Region, Rules, chance_to_work, draw_failing, draw_rules
from tokenpeak.search.finals import FINALISTS, SCREENING_LAUNCHES, Finals, lone_launches
from tokenpeak.search.history import (
    Budget,
    Finished,
    Outcome,
    Proposal,
    Wait,
    alike_by_answers,
    by_own_fault,
    next_replicate,
)
from tokenpeak.search.posterior import SAMPLES, Components, Posterior, PosteriorSamples, condition, draw_components
from tokenpeak.search.space import Floats, space_of, trend
from tokenpeak.spec.sweep import SearchSpec

FAIR_CHANCE = 0.003
"""Screening ends when no untried config is better by half the margin with at least this probability."""
FEWEST_TRIALS = 10
"""Screening does not end by itself before so many results: fewer show too little of how noisy launches are."""
CAUTION = 0.3
"""While nothing has worked but something failed, so much the log chance to work counts beside the log objective:
another failure costs a launch, and the far end of the space shows little of the best."""
FAIR_SHARE = 0.25
"""After a failure a config is launched only if it is at least this share as likely to be as good as the best as the
likeliest; the information that it would give comes on top."""
NEXT_BUT_ONE = 0.8
"""What a hit is worth then that takes two launches; less than 1, or a search may explore without end."""
MOST_POINTS = 256
"""Of a larger space, posterior samples cover so many points: those launched and those with the best outlook."""
OWN_SHARE = 0.3
"""For the final choice the residual of a config is larger by this share of the amplitude of its axes: while searching,
a result informs about other configs; in the end it counts for its own config."""
POOR_CHANCE = 0.02
"""A config is no finalist when the probability that it is within the margin of the best is below this."""
MARGINS = 3
"""An early stop leaves out the rest of a config that is behind the best by so many margins, whatever the confidence."""
DEVIATIONS = 3
"""How many standard deviations of the difference between two launches come on top."""
EXPECTED_NOISE, EXPECTED_WORTH = 0.05, 2
"""What launches are thought to vary by (log) until they are seen to, and how many of them that counts for."""


class Adaptive:
    """The adaptive strategy over one plan; `metric` is the objective."""

    def __init__(self, search: SearchSpec, plan: Plan, *, metric: str, direction: Direction) -> None:
        self._search = search
        self._sign = -1.0 if direction == "lower" else 1.0
        self._space = space_of(plan, metric=metric)
        self._budget = Budget.of(search, plan)
        self._seed = f"{search.seed} {plan.hardware}"
        names = dict(zip(self._space.names, self._space.configs, strict=True))
        self._baseline = [names[name] for name in search.baseline if name in names]
        self._margin = math.log1p(search.margin)
        self._finalists = FINALISTS if search.finalists is None else search.finalists
        self._alike = alike_by_answers(plan)
        self._finals = Finals(
            search=search,
            seed=self._seed,
            first=SCREENING_LAUNCHES,
            sign=self._sign,
            alike=self._alike,
            lone=lone_launches(search, plan),
        )
        self._anchors = Anchors.of(
            search, plan, trials=search.trials or math.inf, replicates=1, after=SCREENING_LAUNCHES
        )
        self._drawn: tuple[tuple[Outcome, ...], PosteriorSamples] | None = None
        # A predictor makes trends superfluous; they are of throughput.
        self._informed = not np.isnan(self._space.expected).all()
        silent = self._informed or direction == "lower"
        self._trend = np.zeros(self._space.size) if silent else trend(self._space)

    @cached_property
    def _components(self) -> Components:
        return draw_components(self._space, self._generator("members"), informed=self._informed)

    @cached_property
    def _rules(self) -> Rules:
        return draw_rules(self._space, self._generator("rules"))

    @cached_property
    def _lots(self) -> Floats:
        """What decides between points that are equally good."""
        return self._generator("lots").random(self._space.size)

    def _generator(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(random.Random(f"{self._seed} {purpose}").getrandbits(64))  # noqa: S311

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Wait | Finished:
        """The next trial, from all trials so far."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        if spent := self._budget.spent(done, pending):
            return Finished(reason=spent)
        screened = [outcome for outcome in done if outcome.replicate < SCREENING_LAUNCHES]
        running = [key for key in pending if key[1] < SCREENING_LAUNCHES]
        step = self._screen(screened, running, done, pending)
        if isinstance(step, Proposal):
            return step
        if anchor := self._anchor_due(len(screened) + len(running), done, pending, is_over=True):
            return anchor
        if running:
            return Wait(reason=f"{step}; what follows depends on trials that are running")
        end: Proposal | Wait | Finished = Finished(reason=step)
        if self._finalists:
            end = self._finals.step(self._pick_finalists(screened), step, done, pending, node)
        return self._anchors.after(end, self._anchor(done), done, pending) if isinstance(end, Finished) else end

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """The launches of the screening; anchors and finalists' come on top."""
        return sum(outcome.status != "interrupted" and outcome.replicate < SCREENING_LAUNCHES for outcome in history)

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The recommended config after all trials; None when none ran within the SLO."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        points = self._feasible_points(done)
        if not points:
            return None
        average = self._final_posterior(done).average()
        return self._space.configs[max(points, key=lambda point: average[point])]

    def finalists(self, done: Sequence[Outcome]) -> list[str] | None:
        """The configs that are launched again in the finals; None while the screening goes on."""
        screened = [outcome for outcome in done if outcome.replicate < SCREENING_LAUNCHES]
        if isinstance(self._screen(screened, (), done, ()), Proposal):
            return None
        return self._pick_finalists(screened) if self._finalists else []

    def _screen(
        self,
        screened: Sequence[Outcome],
        running: Sequence[tuple[str, int]],
        done: Sequence[Outcome],
        pending: Collection[tuple[str, int]],
    ) -> Proposal | str:
        """The next launch of the screening, or why no further one is worth it."""
        launches = Counter([outcome.config_id for outcome in screened] + [config_id for config_id, _ in running])

        def proposal(config_id: str, reason: str) -> Proposal:
            return Proposal(config_id=config_id, replicate=next_replicate(config_id, done, pending), reason=reason)

        for config_id in self._baseline:
            if config_id not in launches:
                return proposal(config_id, "baseline: gains are stated against it")
        if self._search.trials is not None and launches.total() >= self._search.trials:
            return "all trials are made"
        barred = by_own_fault(screened, self._alike)
        untried = np.array([config_id not in launches and config_id not in barred for config_id in self._space.configs])
        open_ = untried | self._put_off(screened, launches)
        if not open_.any():
            return "every config has been tried"
        if anchor := self._anchor_due(launches.total(), done, pending):
            return anchor
        posterior = self._posterior(screened, [self._space.point_of[config_id] for config_id, _ in running])
        worked, failed = self._worked_and_failed(screened)
        works = chance_to_work(self._rules, worked, failed)
        feasible = self._feasible_points(screened)
        if not feasible and running:
            # Together the launches of a first round are to meet the best, also where predictions are wrong.
            first, score = self._chances(screened, running, open_, is_last=True)
            point = self._best(np.where(open_, score, -np.inf))
            return proposal(
                self._space.configs[point], f"{first[point]:.0%} likely the first that is as good as the best"
            )
        if not feasible:
            caution = CAUTION if failed else 1.0
            score = np.where(open_, posterior.average() + caution * np.log(works), -np.inf)
            return proposal(self._space.configs[self._best(score)], "best by the prior")
        gain = posterior.expected_gain(feasible) * works
        better = posterior.chance_over(feasible, self._margin / 2) * works
        if len(screened) >= FEWEST_TRIALS and better[open_].max() < FAIR_CHANCE:
            return f"no untried config has a {FAIR_CHANCE:.1%} chance of being better by {self._search.margin / 2:.1%}"
        # Without a predictor too much may be true for hits to be counted; there the expected gain does better.
        if failed and self._informed:
            is_last = self._search.trials is not None and launches.total() + 1 >= self._search.trials
            first, score = self._chances(screened, running, open_, is_last=is_last)
            point = self._best(np.where(open_, score, -np.inf))
            reason = f"{first[point]:.0%} likely the first that is as good as the best"
        else:
            for point in feasible:
                open_[point] = launches[self._space.configs[point]] < SCREENING_LAUNCHES
            point = self._best(np.where(open_, gain, -np.inf))
            reason = f"expected gain {math.expm1(gain[point]):.1%}"
            if point in feasible:
                return proposal(self._space.configs[point], f"again: {reason}")
            reason += f", {better[point]:.0%} chance of more than half the margin"
        threshold = early_stop_threshold(done, margin=self._search.margin, sign=self._sign)
        return replace(proposal(self._space.configs[point], reason), early_stop_threshold=threshold)

    def _chances(
        self, screened: Sequence[Outcome], running: Sequence[tuple[str, int]], open_: Region, *, is_last: bool
    ) -> tuple[Floats, Floats]:
        """For each point, how likely it is the first as good as the best, and a score with the launch after it."""
        samples = self._samples(screened)
        tried = [*self._feasible_points(screened), *(self._space.point_of[config_id] for config_id, _ in running)]
        first = samples.chance_to_hit(tried)
        likely = open_ & (first >= FAIR_SHARE * first[open_].max())
        score = first if is_last else first + NEXT_BUT_ONE * samples.chance_after(tried, open_, likely)
        return first, np.where(likely, score, -np.inf)

    def _put_off(self, screened: Sequence[Outcome], launches: Counter[str]) -> Region:
        """The points whose only launch failed for a reason that says nothing of them."""
        put_off = {
            outcome.config_id
            for outcome in screened
            if outcome.failure_cause in TRANSIENT_CAUSES and launches[outcome.config_id] == 1
        }
        return np.array([config_id in put_off for config_id in self._space.configs])

    def _best(self, score: Floats) -> int:
        """The point of the highest score; lots decide between equals."""
        near = score >= score.max() - 1e-12
        return int(np.argmax(np.where(near, self._lots, -1.0)))

    def _anchor(self, done: Sequence[Outcome]) -> str | None:
        """The first baseline that did not fail by its own fault."""
        failed = by_own_fault(done, self._alike)
        return next((config_id for config_id in self._baseline if config_id not in failed), None)

    def _anchor_due(
        self, tried: int, done: Sequence[Outcome], pending: Collection[tuple[str, int]], *, is_over: bool = False
    ) -> Proposal | None:
        """The anchor's next launch, if it is due; `is_over`: the screening has ended."""
        anchor = self._anchor(done)
        if anchor is None or not self._anchors.due(launches_of(anchor, done, pending), tried, is_over=is_over):
            return None
        return self._anchors.proposal(anchor, done, pending)

    def _pick_finalists(self, screened: Sequence[Outcome]) -> list[str]:
        """The best of the screening that may be the best of all, at most as many as asked for."""
        points = self._feasible_points(screened)
        if not points:
            return []
        posterior = self._final_posterior(screened)
        average = posterior.average()
        ranked = sorted(points, key=lambda point: -average[point])
        near = posterior.chance_over(points, -self._margin)
        chosen = [point for point in ranked if near[point] >= POOR_CHANCE or point == ranked[0]]
        return [self._space.configs[point] for point in chosen[: max(1, self._finalists)]]

    def _final_posterior(self, outcomes: Sequence[Outcome]) -> Posterior:
        return self._posterior(outcomes, (), self._components.with_own(OWN_SHARE))

    def _posterior(
        self, outcomes: Sequence[Outcome], running: Sequence[int], components: Components | None = None
    ) -> Posterior:
        measured = [
            (self._space.point_of[outcome.config_id], self._logarithm(outcome))
            for outcome in outcomes
            if outcome.value is not None and outcome.value > 0 and outcome.config_id in self._space.point_of
        ]
        points, values = [point for point, _ in measured], [value for _, value in measured]
        return condition(self._space, components or self._components, self._trend, points, values, running)

    def _samples(self, outcomes: Sequence[Outcome]) -> PosteriorSamples:
        """Posterior samples after these outcomes, drawn once however many nodes ask."""
        if self._drawn is None or self._drawn[0] != tuple(outcomes):
            self._drawn = tuple(outcomes), self._draw(outcomes)
        return self._drawn[1]

    def _draw(self, outcomes: Sequence[Outcome]) -> PosteriorSamples:
        """Posterior samples; in a large space, of the points that matter."""
        posterior = self._posterior(outcomes, ())
        worked, failed = self._worked_and_failed(outcomes)
        generator = self._generator(f"worlds {len(outcomes)}")
        fails = draw_failing(self._rules, worked, failed, SAMPLES, generator)
        outlook = posterior.weights @ (posterior.mean + posterior.deviation)
        outlook[worked] = np.inf
        points = np.sort(np.argsort(-outlook, kind="stable")[:MOST_POINTS])
        values = np.full((SAMPLES, self._space.size), -np.inf)
        values[:, points], noise = posterior.sample(SAMPLES, points, generator)
        values[fails] = -np.inf
        return PosteriorSamples(values=values, tolerance=np.maximum(self._margin / 2, noise))

    def _worked_and_failed(self, outcomes: Sequence[Outcome]) -> tuple[list[int], list[int]]:
        """The points that worked, and those that failed for a reason that lies in them."""
        results = [
            (self._space.point_of[outcome.config_id], outcome.feasible)
            for outcome in outcomes
            if outcome.config_id in self._space.point_of
            and (outcome.feasible or outcome.slo_met is False or outcome.about_the_config)
        ]
        worked = sorted({point for point, fine in results if fine})
        # Those that answer as a launch whose answers failed would fail without a launch.
        barred = {self._space.point_of[each] for each in by_own_fault(outcomes, self._alike) if each in self._alike}
        return worked, sorted(({point for point, fine in results if not fine} | barred) - set(worked))

    def _feasible_points(self, outcomes: Sequence[Outcome]) -> list[int]:
        points = {
            self._space.point_of[outcome.config_id]
            for outcome in outcomes
            if outcome.feasible and (outcome.value or 0) > 0 and outcome.config_id in self._space.point_of
        }
        return sorted(points)

    def _logarithm(self, outcome: Outcome) -> float:
        assert outcome.value is not None, "only measured outcomes have a logarithm"
        return self._sign * math.log(outcome.value)


def early_stop_threshold(history: Sequence[Outcome], *, margin: float, sign: float) -> float | None:
    """The objective beyond which a trial stops early: far behind the best so far; None before there is a best.

    Worse by three margins, and by what two launches may differ by besides: windows of a run would show how steady that
    launch was, and nothing of the next. `sign` is −1 where the objective is to be low.
    """
    values: dict[str, list[float]] = {}
    for outcome in history:
        if outcome.feasible and outcome.value is not None and outcome.value > 0:
            values.setdefault(outcome.config_id, []).append(sign * math.log(outcome.value))
    if not values:
        return None
    again = [launches for launches in values.values() if len(launches) > 1]
    squares = sum(variance(launches) * (len(launches) - 1) for launches in again)
    freedom = sum(len(launches) - 1 for launches in again)
    noise = math.sqrt((EXPECTED_WORTH * EXPECTED_NOISE**2 + squares) / (EXPECTED_WORTH + freedom))
    best = max(fmean(launches) for launches in values.values())
    return math.exp(sign * (best - MARGINS * math.log1p(margin) - DEVIATIONS * math.sqrt(2) * noise))
