"""Lengths of requests, from production's counts: each request whose end, or begin, is alone between two readings. Pure.

Of a request that ends alone its prompt and answer are known together; of one that begins alone, its prompt and what of
it was cached. Both meet by the length of the prompt. Requests that are alone more often when few run, are weighed so
that all together agree with vLLM's histograms.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpeak.loadgen.traffic.readings import Array, Readings

FEWEST = 50
"""Fewer requests that are known together do not show how lengths go together."""
ROUNDS = 5
"""Of fitting the weights to both histograms in turn."""
Histogram = Sequence[tuple[float, float]]
"""Bounds and how many values are up to each, in order; the last is infinite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLengths:
    """Tokens of a request."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class ObservedLengths:
    """Lengths of so many requests as came."""

    requests: tuple[RequestLengths, ...]
    alone: int
    """Requests of which prompt and answer were seen together."""

    @property
    def is_joint(self) -> bool:
        """Whether prompts and answers go together as they did; else each is drawn by itself."""
        return self.alone >= FEWEST


def observed_lengths(
    readings: Readings, histograms: Mapping[str, Histogram], number: int, random: np.random.Generator
) -> ObservedLengths:
    """`number` requests with the lengths that were seen; histograms are of `prompts_tokens` and `answers_tokens`."""
    pairs = _alone(readings, "prompts", "prompts_tokens", "answers_tokens")
    begun = _begun_alone(readings)
    queries, hits = (float(readings.between(name).sum()) for name in ("queries", "hits"))
    share = hits / queries if queries else 0.0
    if len(pairs) < FEWEST:
        prompts, answers = (_drawn(histograms[name], _mean(readings, name), number, random) for name in PARTS)
        pairs_drawn = np.stack([prompts, answers], axis=1)
    else:
        weights = _weights(pairs, [histograms[name] for name in PARTS])
        pairs_drawn = _systematic(pairs, weights, number, random)
    cached = _cached(pairs_drawn[:, 0], begun, share, random)
    return ObservedLengths(
        requests=tuple(
            RequestLengths(input_tokens=int(given), cached_tokens=int(known), output_tokens=int(made))
            for (given, made), known in zip(pairs_drawn, cached, strict=True)
        ),
        alone=len(pairs),
    )


PARTS = ("prompts_tokens", "answers_tokens")


def _alone(readings: Readings, count: str, first: str, second: str) -> Array:
    """Both amounts of each request that is the only one between two readings; shape n x 2."""
    is_alone = readings.between(count) == 1
    amounts = np.stack([readings.between(first)[is_alone], readings.between(second)[is_alone]], axis=1)
    return np.asarray(np.rint(amounts[(amounts > 0).all(axis=1)]))


def _begun_alone(readings: Readings) -> Array:
    """Prompt and cached tokens of each request that began alone; shape n x 2."""
    queries, hits = readings.between("queries"), readings.between("hits")
    is_alone = (readings.begun == 1) & (queries > 0) & (hits <= queries)
    return np.asarray(np.rint(np.stack([queries[is_alone], hits[is_alone]], axis=1)))


def _mean(readings: Readings, name: str) -> float:
    ended = float(readings.between("prompts").sum())
    return float(readings.between(name).sum()) / ended if ended else 1.0


def _shares(histogram: Histogram) -> tuple[Array, Array]:
    """Upper bounds, and the share of values in each bucket."""
    bounds, upto = np.array(histogram, dtype=float).T
    counts = np.diff(np.concatenate([[0.0], upto]))
    return bounds, counts / counts.sum() if counts.sum() else counts


def _weights(pairs: Array, histograms: Sequence[Histogram]) -> Array:
    """A weight for each pair, so that both lengths are in vLLM's buckets as often as of all requests."""
    weights = np.full(len(pairs), 1 / len(pairs))
    for _ in range(ROUNDS):
        for column, histogram in enumerate(histograms):
            bounds, shares = _shares(histogram)
            bucket = np.searchsorted(bounds, pairs[:, column])
            here = np.bincount(bucket, weights, minlength=len(bounds))
            factor = np.divide(shares, here, out=np.ones_like(shares), where=here > 0)
            weights = weights * factor[bucket]
            weights /= weights.sum() or 1.0
    return weights


def _systematic(pairs: Array, weights: Array, number: int, random: np.random.Generator) -> Array:
    """`number` of the pairs by weight, evenly over lengths of prompts, in the order of chance."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    marks = (np.arange(number) + random.random()) / max(1, number)
    chosen = np.searchsorted(np.cumsum(weights[order]), marks * weights.sum()).clip(0, len(pairs) - 1)
    return random.permutation(pairs[order][chosen])


def _drawn(histogram: Histogram, mean: float, number: int, random: np.random.Generator) -> Array:
    """Lengths from buckets, even within each on a logarithmic scale; then all are scaled to the mean."""
    bounds, shares = _shares(histogram)
    if not shares.sum():
        return np.full(number, max(1.0, round(mean)))
    lower = np.concatenate([[1.0], bounds[:-1]])
    upper = np.where(np.isinf(bounds), 2 * lower, bounds)
    bucket = random.choice(len(bounds), size=number, p=shares)
    low, high = np.log(np.maximum(1, lower[bucket])), np.log(np.maximum(1, upper[bucket]))
    lengths = np.exp(low + (high - low) * random.random(number))
    scaled = lengths * mean / lengths.mean()
    return np.asarray(np.maximum(1, np.rint(np.clip(scaled, lower[bucket], upper[bucket]))))


def _cached(prompts: Array, begun: Array, share: float, random: np.random.Generator) -> Array:
    """What is cached of each prompt: as of one of that length, else as of one of about that length; in all as `share`.

    A prompt's last token is never cached.
    """
    if len(begun) < FEWEST:
        return np.minimum(np.floor(prompts * share), prompts - 1)
    known: dict[int, list[int]] = defaultdict(list)
    for length, hits in begun.astype(int):
        known[length].append(hits)
    lengths = np.array(sorted(known))
    cached = np.empty(len(prompts))
    for at, prompt in enumerate(prompts.astype(int)):
        near = lengths[np.argmin(np.abs(lengths - prompt))]
        cached[at] = min(random.choice(known[int(near)]), prompt - 1)
    return cached
