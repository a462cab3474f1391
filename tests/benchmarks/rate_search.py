"""Benchmark of the rate search on simulated servers of known capacity, in virtual time, beside a bisection.

`python -m benchmarks.rate_search --cases 200`. Each case that has ended is a line of the results file, so a benchmark
that was cut short goes on. A case counts as long as the search, the servers and the bisection are those it was run by.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice, product
from pathlib import Path
from zlib import crc32

import numpy as np

from benchmarks import bisection, queue_servers, rate_cases
from benchmarks.queue_servers import capacity
from benchmarks.rate_cases import KINDS, SHARES, offered, searched
from tokenpeak.loadgen import model_runs, queue_estimate, queue_model, rate_probe, sustainable_rate
from tokenpeak.loadgen.rate_probe import ProbeAsked, ProbeSeen
from tokenpeak.paths import state_dir

RATE_PER_S = 20.0
FIRST_SEED = 7000
VERSIONED = (
    bisection,
    queue_servers,
    rate_cases,
    model_runs,
    queue_estimate,
    queue_model,
    rate_probe,
    sustainable_rate,
)


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """A case's truth, what the search answered, and what a bisection did."""

    kind: str
    seed: int
    version: str
    truth_per_s: float
    capacity_per_s: float
    rate_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    probes: int
    duration_s: float
    bisected_per_s: float | None
    bisection_probes: int
    bisection_s: float

    @property
    def error(self) -> float:
        """Answer ÷ truth − 1."""
        return (self.rate_per_s or 0.0) / self.truth_per_s - 1

    @property
    def above_capacity(self) -> float:
        """Answer ÷ capacity − 1."""
        return (self.rate_per_s or 0.0) / self.capacity_per_s - 1

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth."""
        return (self.low_per_s or 0.0) <= self.truth_per_s <= (self.high_per_s or np.inf)

    @property
    def bisection_error(self) -> float:
        """The bisection's answer ÷ truth − 1."""
        return (self.bisected_per_s or 0.0) / self.truth_per_s - 1


def version() -> str:
    """Of the code that decides a case."""
    sources = b"".join(Path(module.__file__ or "").read_bytes() for module in VERSIONED)
    return hashlib.sha256(sources).hexdigest()[:12]


def run_case(kind: str, seed: int) -> CaseResult:
    """Search and bisect on one server."""
    case = searched(kind, seed, RATE_PER_S)
    server, arriving, limits = KINDS[kind]
    scale = RATE_PER_S / (SHARES[kind] * capacity(server))
    own, numbers = crc32(f"bisection {kind} {seed}".encode()), count()

    def offer(asked: ProbeAsked) -> ProbeSeen:
        return offered(server, asked, arriving, scale, own, next(numbers))

    other = bisection.bisect(offer, [(metric, percent, limit / scale) for metric, percent, limit in limits])
    return CaseResult(
        kind=kind,
        seed=seed,
        version=version(),
        truth_per_s=case.truth_per_s,
        capacity_per_s=case.capacity_per_s,
        rate_per_s=case.answer.rate_per_s,
        low_per_s=case.answer.low_per_s,
        high_per_s=case.answer.high_per_s,
        probes=len(case.probes),
        duration_s=case.seconds,
        bisected_per_s=other.rate_per_s,
        bisection_probes=other.probes,
        bisection_s=other.duration_s,
    )


def cases(number: int, results: Path | None = None, first_seed: int = FIRST_SEED) -> list[CaseResult]:
    """So many cases, a seed of each kind after the other; those in the results file are not run again."""
    seeds = range(first_seed, first_seed + number)
    wanted = [(kind, seed) for seed, kind in islice(product(seeds, KINDS), number)]
    current, known = version(), dict[tuple[str, int], CaseResult]()
    if results is not None and results.is_file():
        for line in results.read_text().splitlines():
            result = CaseResult(**json.loads(line))
            if result.version == current:
                known[result.kind, result.seed] = result
    found = []
    for kind, seed in wanted:
        case = known.get((kind, seed))
        if case is None:
            case = run_case(kind, seed)
            if results is not None:
                results.parent.mkdir(parents=True, exist_ok=True)
                with results.open("a") as file:
                    file.write(json.dumps(asdict(case)) + "\n")
        found.append(case)
    return found


def _range(errors: Sequence[float]) -> str:
    return f"{100 * min(errors):+.1f} to {100 * max(errors):+.1f}%"


def table(found: Sequence[CaseResult]) -> Iterator[str]:
    """A row a kind, and one of all: errors of the search and of the bisection, what they took."""
    yield f"{'':34} {'truth/s':>7} {'answers/s':>13} {'error':>17} {'held':>5} probes   s   bisection: error, probes, s"
    for kind in (*dict.fromkeys(case.kind for case in found), "all"):
        own = [case for case in found if kind in ("all", case.kind)]
        answers = [case.rate_per_s or 0.0 for case in own]
        covered = sum(case.covered for case in own)
        yield (
            f"{kind:34} {own[0].truth_per_s:7.2f} {min(answers):6.2f}–{max(answers):<6.2f} "
            f"{_range([case.error for case in own]):>17} {covered:>3}/{len(own)} "
            f"{np.median([case.probes for case in own]):4.0f} {max(case.duration_s for case in own):5.0f}   "
            f"{_range([case.bisection_error for case in own]):>18} "
            f"{np.median([case.bisection_probes for case in own]):3.0f} {max(case.bisection_s for case in own):5.0f}"
        )


def summary(found: Sequence[CaseResult]) -> Iterator[str]:
    """Shares within 5%, above capacity and covered, and the most that a case took."""
    number = len(found)
    for name, errors, above in (
        ("search", [case.error for case in found], [case.above_capacity for case in found]),
        (
            "bisection",
            [case.bisection_error for case in found],
            [(case.bisected_per_s or 0.0) / case.capacity_per_s - 1 for case in found],
        ),
    ):
        within, over = (int(np.sum(np.abs(errors) <= 0.05)), int(np.sum(np.array(above) > 0.01)))
        yield (
            f"{name}: {within} of {number} within 5%, mean error {100 * np.mean(errors):+.1f}%, "
            f"largest {100 * max(errors, key=abs):+.1f}%, {over} more than 1% above capacity"
        )
    yield (
        f"intervals: {sum(case.covered for case in found)} of {number} hold the truth; "
        f"probes: {np.median([case.probes for case in found]):.0f} in the median, "
        f"{max(case.probes for case in found)} at most; {max(case.duration_s for case in found):.0f} s at most"
    )


def main() -> None:
    """Run the cases that are missing and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=200)
    options.add_argument("--first-seed", type=int, default=FIRST_SEED)
    options.add_argument("--results", type=Path, default=state_dir() / "rate-search.jsonl")
    given = options.parse_args()
    found = cases(given.cases, given.results, given.first_seed)
    for line in (*table(found), *summary(found)):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
