"""What a run over mutants found: shares with their intervals, by package, and what no test noticed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest
from tests.mutants.sample import PACKAGES, Mutant

KILLED = ("killed", "timed out")
MISSED = ("survived", "not covered")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a mutant: killed, timed out, survived, not covered, or stale, which counts nowhere."""

    mutant: str
    revision: str
    verdict: str
    by: str | None = None
    """The test that failed."""
    capped: bool = False
    """Whether the limit of time left out tests that might have noticed it."""
    tests: int = 0
    seconds: float = 0.0


def _row(name: str, results: Sequence[Result]) -> str:
    verdicts = [result.verdict for result in results]
    killed = sum(verdicts.count(verdict) for verdict in KILLED)
    n = killed + sum(verdicts.count(verdict) for verdict in MISSED)
    share = f"{'–':>4}  {'–':>12}"
    if n:
        interval = binomtest(killed, n).proportion_ci(method="wilson")
        share = f"{killed / n:4.0%}  {interval.low:4.0%} to {interval.high:4.0%}"
    capped = sum(result.capped for result in results if result.verdict == "survived")
    counts = "".join(f"{count:13}" for count in (*map(verdicts.count, MISSED), capped, verdicts.count("stale")))
    return f"{name:<9}{n:6}{killed:8}  {share}{counts}"


def summary(mutants: Sequence[Mutant], results: Sequence[Result]) -> str:
    """A line for each package and one for all, then each mutant that was missed or is stale."""
    by_id = {result.mutant: result for result in results}
    judged = [(mutant, by_id[mutant.id]) for mutant in mutants if mutant.id in by_id]
    head = f"{'package':<9}{'n':>6}{'killed':>8}  share  95% interval"
    lines = [head + "".join(f"{word:>13}" for word in ("survived", "not covered", "capped", "stale"))]
    for package in PACKAGES:
        own = [result for mutant, result in judged if mutant.package == package]
        lines.append(_row(package, own))
    lines.append(_row("all", [result for _, result in judged]))
    if len(judged) < len(mutants):
        lines.append(f"{len(mutants) - len(judged)} of {len(mutants)} mutants have no result yet.")
    for verdict in (*MISSED, "stale"):
        found = [(mutant, result) for mutant, result in judged if result.verdict == verdict]
        if found:
            lines += ["", f"{verdict}:"]
            lines += [f"  {mutant}{'  (capped)' if result.capped else ''}" for mutant, result in found]
    return "\n".join(lines)


def read_results(lines: Sequence[dict[str, Any]], revision: str) -> list[Result]:
    """The results of this revision; what another one's tests noticed says nothing of it."""
    return [Result(**line) for line in lines if line["revision"] == revision]
