"""Seeded cases of the rate search on simulated servers: what it answered beside the truth."""

from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from benchmarks.queue_servers import BatchEngine, Served, Server, Slots, Works, capacity
from tokenpeak.loadgen.arrivals import timetable
from tokenpeak.loadgen.rate.probe import ProbeAsked, ProbeSeen
from tokenpeak.loadgen.rate.queue import Timings
from tokenpeak.loadgen.rate.sustainable import SustainableRateSearch
from tokenpeak.records import MaxRate
from tokenpeak.spec.load import OpenLoad

Limits = tuple[tuple[str, int, float], ...]
EXPONENTIAL, DETERMINISTIC = Works("exponential"), Works("deterministic")
ANY = 10**6
EQUAL_LENGTHS = BatchEngine(
    batch=64,
    tokens=Works("deterministic", 64.0),
    step_s=0.008,
    per_request_s=0.00003,
    per_prompt_s=0.008,
    prompts_a_step=64,
)
"""A closed loop on it runs in lockstep: prompts come at once, are read in one step, and answers end at once."""

KINDS: dict[str, tuple[Server, str, Limits]] = {
    "1 slot, deterministic": (Slots(1, DETERMINISTIC), "poisson", (("ttft_s", 99, 5.0),)),
    "4 slots, deterministic, loose": (Slots(4, DETERMINISTIC), "poisson", (("ttft_s", 99, 3.0),)),
    "8 slots, deterministic, tight": (Slots(8, DETERMINISTIC), "poisson", (("ttft_s", 99, 0.5),)),
    "32 slots, deterministic, one token": (
        Slots(32, DETERMINISTIC, first_share=1.0, tokens=1),
        "gamma",
        (("latency_s", 95, 1.5),),
    ),
    "2 slots, exponential": (Slots(2, EXPONENTIAL), "poisson", (("ttft_s", 95, 2.0),)),
    "8 slots, exponential, tight": (Slots(8, EXPONENTIAL), "poisson", (("ttft_s", 99, 0.7),)),
    "8 slots, exponential, loose": (Slots(8, EXPONENTIAL), "poisson", (("ttft_s", 99, 4.0),)),
    "8 slots, exponential, constant": (Slots(8, EXPONENTIAL), "constant", (("ttft_s", 99, 2.0),)),
    "48 slots, exponential": (Slots(48, EXPONENTIAL), "poisson", (("ttft_s", 99, 0.6),)),
    "8 slots, lognormal": (Slots(8, Works("lognormal", 1.0, 1.0)), "poisson", (("ttft_s", 99, 3.0),)),
    "16 slots, Pareto": (Slots(16, Works("pareto", 1.0, 2.5)), "poisson", (("ttft_s", 95, 0.6),)),
    "1 processor, exponential": (Slots(ANY, EXPONENTIAL, 1.0), "poisson", (("latency_s", 95, 12.0),)),
    "1 processor, deterministic": (Slots(ANY, DETERMINISTIC, 1.0), "poisson", (("latency_s", 95, 8.0),)),
    "4 processors, lognormal": (Slots(ANY, Works("lognormal", 1.0, 0.7), 4.0), "gamma", (("latency_s", 95, 6.0),)),
    "4 processors of 16 slots": (Slots(16, EXPONENTIAL, 4.0), "poisson", (("ttft_s", 99, 2.0), ("latency_s", 95, 9.0))),
    "batch engine, TPOT": (BatchEngine(), "poisson", (("ttft_s", 99, 0.5), ("tpot_s", 95, 0.045))),
    "batch engine, TTFT": (BatchEngine(), "poisson", (("ttft_s", 99, 1.5),)),
    "batch engine, equal lengths": (EQUAL_LENGTHS, "poisson", (("ttft_s", 95, 0.5), ("tpot_s", 95, 0.05))),
    "batch engine, equal lengths, small batch": (
        replace(EQUAL_LENGTHS, batch=16),
        "poisson",
        (("ttft_s", 95, 0.2), ("tpot_s", 95, 0.03)),
    ),
    "batch engine, constant": (BatchEngine(batch=64, per_request_s=0.0005), "constant", (("tpot_s", 95, 0.055),)),
}


SHARES: dict[str, float] = {
    "1 slot, deterministic": 0.6208,
    "4 slots, deterministic, loose": 0.8275,
    "8 slots, deterministic, tight": 0.5619,
    "32 slots, deterministic, one token": 0.8567,
    "2 slots, exponential": 0.4997,
    "8 slots, exponential, tight": 0.5313,
    "8 slots, exponential, loose": 0.8677,
    "8 slots, exponential, constant": 0.8720,
    "48 slots, exponential": 0.8495,
    "8 slots, lognormal": 0.7820,
    "16 slots, Pareto": 0.8198,
    "1 processor, exponential": 0.6997,
    "1 processor, deterministic": 0.6844,
    "4 processors, lognormal": 0.7605,
    "4 processors of 16 slots": 0.7993,
    "batch engine, TPOT": 0.5820,
    "batch engine, TTFT": 0.9285,
    "batch engine, equal lengths": 0.9538,
    "batch engine, equal lengths, small batch": 0.7792,
    "batch engine, constant": 0.8816,
}
"""Sustainable rate ÷ capacity of each kind, as `sustainable` computes it in half an hour; a long test does so again.

Of exponential slots under Poisson arrivals the Erlang formula gives it; there `sustainable` is up to 0.7% off.
"""


@dataclass(frozen=True)
class Case:
    """A search that has ended."""

    kind: str
    truth_per_s: float
    capacity_per_s: float
    answer: MaxRate
    probes: tuple[ProbeSeen, ...]

    @property
    def error(self) -> float:
        """Answer ÷ truth − 1."""
        return (self.answer.rate_per_s or 0.0) / self.truth_per_s - 1

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth."""
        return (self.answer.low_per_s or 0.0) <= self.truth_per_s <= (self.answer.high_per_s or np.inf)

    @property
    def seconds(self) -> float:
        """What the probes took."""
        return sum(probe.duration_s for probe in self.probes)


def offered(server: Server, asked: ProbeAsked, kind: str, scale: float, seed: int, number: int) -> ProbeSeen:
    """The probe of this `number` on a server `scale` times as fast."""
    random = np.random.default_rng([seed, number])
    if asked.concurrency is not None:
        served = server.serve(np.zeros(asked.requests), random, asked.concurrency, asked.ramp_s * scale)
        if asked.duration_s is not None:
            served = until(served, asked.duration_s * scale)
    else:
        level = OpenLoad(
            rate_per_s=asked.rate_per_s,
            requests=asked.requests,
            arrivals=kind,
            burstiness=0.5 if kind == "gamma" else 1.0,
        )
        served = server.serve(np.array(timetable(level, seed)) * scale, random)
    timings = Timings(
        due_s=served.due_s / scale,
        first_s=served.first_s / scale,
        last_s=served.last_s / scale,
        tokens=served.tokens,
        answer_shares=np.zeros(served.due_s.size),
    )
    return ProbeSeen(asked=asked, timings=timings, duration_s=float(timings.last_s.max()))


def until(served: Served, end_s: float) -> Served:
    """Those due by then."""
    kept = served.due_s <= end_s
    return Served(served.due_s[kept], served.first_s[kept], served.last_s[kept], served.tokens[kept])


def searched(kind: str, seed: int, rate_per_s: float = 20.0) -> Case:
    """One search on a server whose sustainable rate is `rate_per_s`."""
    server, arriving, limits = KINDS[kind]
    scale = rate_per_s / (SHARES[kind] * capacity(server))
    search = SustainableRateSearch(
        limits=[(metric, f"p{percent}", limit / scale) for metric, percent, limit in limits],
        arrivals=arriving,
        burstiness=0.5 if arriving == "gamma" else 1.0,
    )
    # Cases of one seed would otherwise share their luck.
    own = crc32(f"{kind} {seed}".encode())
    probes: list[ProbeSeen] = []
    while isinstance(step := search.step(probes), ProbeAsked):
        probes.append(offered(server, step, arriving, scale, own, len(probes)))
    return Case(kind, rate_per_s, capacity(server) * scale, step, tuple(probes))
