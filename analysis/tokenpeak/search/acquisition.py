"""Acquisition: the launch that most likely leads to the best config, counted over posterior samples.

A posterior sample gives each point a value, or a failure. Two probabilities are counted over many samples: that a point
is as good as the best of its sample, and that only the launch after it is, once its result has excluded samples. The
best config that works often lies next to configs that fail: the second probability makes the search launch where the
limit is uncertain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenpeak.search.feasibility import Region
from tokenpeak.search.space import Floats, Integers

SAMPLES = 2048
GRADES = 6
"""Results that a launch is assumed to distinguish, beside its failure."""


@dataclass(frozen=True, kw_only=True)
class PosteriorSamples:
    """Posterior samples, all equally likely.

    `values` (samples, points) are log objective, best high, −inf where a launch fails; `tolerance` (samples,) is how
    far behind the best is as good.
    """

    values: Floats
    tolerance: Floats

    @cached_property
    def hits(self) -> Region:
        """(samples, points): the point works and is as good as the best of its sample."""
        best = self.values.max(axis=1, keepdims=True)
        found: Region = np.isfinite(self.values) & (self.values >= best - self.tolerance[:, None])
        return found

    def chance_to_hit(self, tried: Sequence[int]) -> Floats:
        """For each point, the probability that it is as good as the best and that none of `tried` is."""
        missed = self._missed(tried)
        found: Floats = (missed[:, None] & self.hits).mean(axis=0)
        return found

    def chance_after(self, tried: Sequence[int], open_: Region, asked: Region) -> Floats:
        """For each point `asked`, the probability that not it but the launch after it is the first as good as the best.

        The launch after it is the best of `open_` once its result is known. Points that are not asked get 0.
        """
        missed = self._missed(tried)
        candidates = self.hits[:, open_ & self.hits.any(axis=0)].astype(np.float32)
        after = np.zeros(self.values.shape[1])
        for point in np.flatnonzero(asked).tolist() if candidates.size else ():
            still = (missed & ~self.hits[:, point]).astype(np.float32)
            # A row for each result: the samples that agree with it.
            left = self._grades(point)[None, :] == np.arange(-1, GRADES)[:, None]
            after[point] = ((left * still) @ candidates).max(axis=1).sum() / len(missed)
        return after

    def _missed(self, tried: Sequence[int]) -> Region:
        """(samples,): none of `tried` is as good as the best."""
        hit: Region = np.logical_or.reduce(self.hits[:, list(tried)], axis=1)
        return ~hit

    def _grades(self, point: int) -> Integers:
        """(samples,): which of as many equally likely results a launch of the point has; −1 where it fails."""
        column = self.values[:, point]
        works = np.flatnonzero(np.isfinite(column))
        grades = np.full(len(column), -1, dtype=np.int64)
        grades[works[np.argsort(column[works], kind="stable")]] = np.arange(len(works)) * GRADES // max(1, len(works))
        return grades
