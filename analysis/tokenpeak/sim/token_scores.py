"""Log-probabilities of the simulated engine: a fixed language in which two tokens say how likely the next ones are.

Prefill and decoding agree exactly. `damage` is the standard deviation, in nats, of an error on the log-probabilities of
a damaged engine, the same each time.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log
from random import Random

LIKELY = 24
"""So many tokens are likely at each place; the others share _REST."""
_REST = 0.01
_STEP_NATS = 0.8
"""Each likely token is less likely than the one before by so much."""


@lru_cache(maxsize=1 << 14)
def likely(before: tuple[int, ...], vocabulary: int, damage: float) -> dict[int, float]:
    """The likely tokens after two others, likeliest first, with their log-probabilities."""
    random = Random(hash(before))  # noqa: S311 - a made-up language, no secret; the hash of numbers is fixed
    tokens = random.sample(range(vocabulary), min(LIKELY, vocabulary))
    weights = [-_STEP_NATS * place + damage * random.gauss(0, 1) for place in range(len(tokens))]
    total = log(sum(map(exp, weights))) - log(1 - _REST)
    return dict(sorted(zip(tokens, (weight - total for weight in weights), strict=True), key=lambda pair: -pair[1]))


def greedy(prompt: Sequence[int], count: int, vocabulary: int, damage: float) -> list[int]:
    """The likeliest `count` tokens after a prompt."""
    tokens = list(prompt[-2:])
    for _ in range(count):
        tokens.append(next(iter(likely(tuple(tokens[-2:]), vocabulary, damage))))
    return tokens[len(prompt[-2:]) :]


def scored(tokens: Sequence[int], start: int, top: int, vocabulary: int, damage: float) -> list[dict[int, float]]:
    """From the place `start` on: the `top` likeliest tokens and the one that stands there, with log-probabilities."""
    rows = []
    for place in range(start, len(tokens)):
        found = likely(tuple(tokens[max(0, place - 2) : place]), vocabulary, damage)
        row = dict(list(found.items())[:top])
        row[tokens[place]] = found.get(tokens[place], log(_REST / max(1, vocabulary - LIKELY)))
        rows.append(row)
    return rows
