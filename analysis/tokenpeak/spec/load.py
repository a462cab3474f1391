"""How a workload is asked, as a spec declares it: its load levels."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from tokenpeak.spec import Declaration
from tokenpeak.spec.slo import Slo

FEWEST_WAVES = 2
"""Waves that a steady window should hold: with one, lengths that differ leave an error of some 10%."""


class _LoadLevel(Declaration):
    requests: PositiveInt | None = None
    """How many requests are measured; this or `duration_s`."""
    duration_s: PositiveFloat | None = None
    """For how long requests are sent; this or `requests`."""
    warmup_requests: int = Field(default=0, ge=0)
    """Sent before the measured ones, at the same level, and not counted."""


class _BoundedLevel(_LoadLevel):
    @model_validator(mode="after")
    def _bounded(self) -> "_BoundedLevel":
        if (self.requests is None) == (self.duration_s is None):
            raise ValueError("give either requests or duration_s")
        return self


class ClosedLoad(_BoundedLevel):
    """A fixed number of requests in flight: the next one is sent when one ends."""

    concurrency: PositiveInt
    """Requests in flight."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"concurrency={self.concurrency}"


class _Arrivals(Declaration):
    arrivals: Literal["constant", "poisson", "gamma"] = "poisson"
    """How the gaps between due requests are drawn (loadgen/arrivals.py)."""
    burstiness: PositiveFloat = 1.0
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier, above 1 more even."""
    max_concurrency: PositiveInt | None = None
    """Requests due beyond it wait in the client; their latency still counts from when they were due."""


class OpenLoad(_BoundedLevel, _Arrivals):
    """Requests due at a rate, whether or not earlier ones have ended."""

    rate_per_s: PositiveFloat
    """Requests due per second, on average."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"rate={self.rate_per_s:g}/s"


class Stage(Declaration):
    """A part of a staged level: a rate or a concurrency, held or reached by a ramp from the stage before."""

    duration_s: PositiveFloat
    """How long the stage takes."""
    rate_per_s: PositiveFloat | None = None
    """Requests due per second at its end."""
    concurrency: PositiveInt | None = None
    """Requests in flight at its end."""
    ramp: bool = False
    """Go evenly from the value before (0 at first) to this one; False: jump to it."""


class StagedLoad(_LoadLevel, _Arrivals):
    """Rates, or concurrencies, that change with time."""

    stages: tuple[Stage, ...] = Field(min_length=1)
    """In order; all with `rate_per_s`, or all with `concurrency`."""

    @model_validator(mode="after")
    def _one_kind(self) -> "StagedLoad":
        rates = sum(stage.rate_per_s is not None for stage in self.stages)
        caps = sum(stage.concurrency is not None for stage in self.stages)
        if sorted((rates, caps)) != [0, len(self.stages)]:
            raise ValueError("give every stage a rate_per_s, or every stage a concurrency")
        if self.duration_s is not None:
            raise ValueError("the stages' own durations bound a staged level; leave duration_s out")
        return self

    @property
    def open(self) -> bool:
        """True for rates, False for concurrencies."""
        return self.stages[0].rate_per_s is not None

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        steps = ">".join(
            f"{'~' if stage.ramp else ''}{stage.rate_per_s or stage.concurrency:g}" for stage in self.stages
        )
        return f"{'rates' if self.open else 'concurrencies'}={steps}"


class ReplayLoad(_LoadLevel):
    """A trace's own timetable; its workload is a trace, which says at what speed."""

    replay: Literal[True]
    """Says that the trace's own times are kept."""
    max_concurrency: PositiveInt | None = None
    """Requests due beyond it wait in the client; their latency still counts from when they were due."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return "replay"


SEARCH_REQUESTS, SEARCH_LEAST_S = 4200.0, 40.0


def search_time_s(rate_per_s: float, budget_s: float) -> float:
    """The most that a search takes which finds this rate: that of so many requests, but not less than some seconds."""
    return min(budget_s, max(SEARCH_LEAST_S, SEARCH_REQUESTS / rate_per_s))


class MaxRateLoad(_LoadLevel, _Arrivals):
    """The highest rate within an SLO, searched for with probes that are open loops."""

    max_rate_under: Slo
    """The limits that the rate must hold."""
    budget_s: PositiveFloat = 600
    """No probe begins that would end after this. The search takes 4200 requests at the rate that it finds, or less."""

    @model_validator(mode="after")
    def _searchable(self) -> "MaxRateLoad":
        if not self.max_rate_under.limits():
            raise ValueError("max_rate_under needs at least one limit, such as ttft_p99_ms: 1000")
        if self.requests is not None or self.duration_s is not None:
            raise ValueError("budget_s bounds the search")
        return self

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return "max_rate"


LoadLevel = ClosedLoad | OpenLoad | StagedLoad | ReplayLoad | MaxRateLoad
"""How a workload is asked: which keys are given says which kind it is."""


class ExternalLoad(Declaration):
    """How another tool asked, as far as its results show; all None: not known."""

    external: Literal[True]
    """Says that another tool asked."""
    concurrency: PositiveInt | None = None
    """Requests in flight, or the most of them where a rate is given too."""
    rate_per_s: PositiveFloat | None = None
    """Requests due per second; None with a concurrency: each is sent when one ends, or all at once."""
    requests: PositiveInt | None = None
    """How many requests were measured."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        if self.rate_per_s is not None:
            return f"rate={self.rate_per_s:g}/s"
        return f"concurrency={self.concurrency}" if self.concurrency is not None else "load-unknown"


_KEYS = {
    "external": "external",
    "replay": "replay",
    "max_rate_under": "max_rate",
    "stages": "staged",
    "rate_per_s": "open",
    "concurrency": "closed",
}
"""Key → the kind of load level that it makes; the first that is given counts."""


def _kind(given: object) -> str | None:
    """Which kind of load level is meant, so that a mistake in it is not complained of as one in every kind."""
    keys = given if isinstance(given, Mapping) else vars(given) if isinstance(given, Declaration) else {}
    return next((kind for key, kind in _KEYS.items() if keys.get(key) is not None), None)


AnyLevel = Annotated[
    Annotated[ClosedLoad, Tag("closed")]
    | Annotated[OpenLoad, Tag("open")]
    | Annotated[StagedLoad, Tag("staged")]
    | Annotated[ReplayLoad, Tag("replay")]
    | Annotated[MaxRateLoad, Tag("max_rate")]
    | Annotated[ExternalLoad, Tag("external")],
    Discriminator(
        _kind,
        custom_error_type="no_level",
        custom_error_message="give concurrency, rate_per_s, stages, max_rate_under or replay",
    ),
]
"""A load level of our own or of an import."""


def level_kind(level: AnyLevel) -> str:
    """closed, open, or unknown where an import does not say."""
    if isinstance(level, ExternalLoad) and level.rate_per_s is None:
        return "closed" if level.concurrency is not None else "unknown"
    if isinstance(level, StagedLoad):
        return "open" if level.open else "closed"
    return "closed" if isinstance(level, ClosedLoad) else "open"
