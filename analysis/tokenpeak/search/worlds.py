"""Worlds that may be true after some trials, and the launch that most likely leads to the best of them.

A world says of every point whether it works and how good it is. Many are drawn from what is believed, so what is likely
can be counted: how often a point is as good as the best of its world, and how often only the launch after it would be,
once its result has told which worlds are left. A best that works is next to what fails more often than not; looking one
launch further than the next makes a search ask where failures begin, and not only hope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenpeak.search.feasibility import Region
from tokenpeak.search.space import Floats, Integers

WORLDS = 2048
GRADES = 6
"""Results that a launch is thought to tell apart, beside its failure."""


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Equally likely worlds.

    `values` (worlds, points) are log objective, best high, −inf where a launch fails; `tolerance` (worlds,) is how far
    behind the best is as good.
    """

    values: Floats
    tolerance: Floats

    @cached_property
    def hits(self) -> Region:
        """(worlds, points): the point works and is as good as the best of its world."""
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
            # A row for each result: the worlds that it would leave.
            left = self._grades(point)[None, :] == np.arange(-1, GRADES)[:, None]
            after[point] = ((left * still) @ candidates).max(axis=1).sum() / len(missed)
        return after

    def _missed(self, tried: Sequence[int]) -> Region:
        """(worlds,): none of `tried` is as good as the best."""
        hit: Region = np.logical_or.reduce(self.hits[:, list(tried)], axis=1)
        return ~hit

    def _grades(self, point: int) -> Integers:
        """(worlds,): which of as many equally likely results a launch of the point has; −1 where it fails."""
        column = self.values[:, point]
        works = np.flatnonzero(np.isfinite(column))
        grades = np.full(len(column), -1, dtype=np.int64)
        grades[works[np.argsort(column[works], kind="stable")]] = np.arange(len(works)) * GRADES // max(1, len(works))
        return grades
