"""Agreement of two scores of the same tokens: KL divergence over the returned top-k, top-1, change of log-likelihood.

An engine returns the likeliest tokens of a position, not the whole distribution. Whatever is not returned is taken
together as one outcome: by the log-sum inequality that can only make the divergence smaller, so it is a lower bound.
"""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean

from tokenpeak.records.quality import TopK

TOP_K = 20
"""vLLM returns at most so many unless max_logprobs is raised."""
_SMALLEST = 1e-6
"""Probabilities below this are rounding."""


def kl_lower_bound(reference: TopK, candidate: TopK) -> float:
    """The least divergence, in nats, of `candidate` from `reference` that what both returned allows; 0 or more.

    A token that only the reference returned has at most the probability of the candidate's last returned one.
    """
    shared = reference.keys() & candidate.keys()
    total = sum(exp(reference[token]) * (reference[token] - candidate[token]) for token in shared)
    p_only = sum(exp(reference[token]) for token in reference.keys() - shared)
    p_rest = max(0.0, 1.0 - sum(map(exp, reference.values())))
    q_left = max(0.0, 1.0 - sum(exp(candidate[token]) for token in shared))
    lumped = _term(p_only + p_rest, q_left)
    q_most = (len(reference) - len(shared)) * exp(_last_returned(candidate)) if candidate else q_left
    p_left = p_only + p_rest
    if p_only <= 0 or p_left <= 0 or q_left * p_only / p_left <= q_most:
        return max(0.0, total + lumped)
    return max(0.0, total + _term(p_only, q_most) + _term(p_rest, q_left - q_most))


def coverage(scores: Sequence[TopK]) -> float:
    """The mean probability that the returned tokens hold together, 0 to 1."""
    return fmean(min(1.0, sum(map(exp, score.values()))) for score in scores)


def same_top1(reference: TopK, candidate: TopK) -> bool:
    """Whether both find the same token likeliest; tokens that are equally likely count as the same."""
    best = max(reference, key=reference.__getitem__)
    return best in candidate and candidate[best] >= max(candidate.values()) - _SMALLEST


def log_ratio(tokens: Sequence[int], reference: Sequence[TopK], candidate: Sequence[TopK]) -> float:
    """The mean of log p(reference) − log p(candidate) of the tokens themselves, in nats."""
    return fmean(ours[token] - theirs[token] for token, ours, theirs in zip(tokens, reference, candidate, strict=True))


def regret(tokens: Sequence[int], scores: Sequence[TopK]) -> float:
    """By how much, in nats, the tokens are less likely in the mean than the likeliest of their positions."""
    return fmean(max(score.values()) - score[token] for token, score in zip(tokens, scores, strict=True))


def same_prefix(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The share of `ours` before the first difference from `theirs`."""
    same = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        same += 1
    return same / len(ours)


def _last_returned(score: TopK) -> float:
    """The log-probability of the TOP_K-th token; the token that stands there may come beside them."""
    return sorted(score.values(), reverse=True)[:TOP_K][-1]


def _term(p: float, q: float) -> float:
    return p * log(p / max(q, _SMALLEST)) if p > _SMALLEST else 0.0
