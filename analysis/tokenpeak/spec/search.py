"""The search of a sweep spec: which configs are tried, in which order, and when it is enough."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from tokenpeak.spec import Declaration
from tokenpeak.spec.window import span_s

MARGIN = 0.02
"""Configs that differ by less than this share are equally good in practice, where a spec does not say otherwise."""


class SearchSpec(Declaration):
    """Which configs are tried, in which order, how often, and when it is enough."""

    strategy: Literal["grid", "random", "adaptive"] = "grid"
    """How the next config is chosen: all of them, some by chance, or by what the trials so far have shown."""
    trials: PositiveInt | None = None
    """At most this many trials on each kind of hardware, baselines counted, finalists' launches not; when absent, all
    configs, and adaptive stops by itself. Anchors of a grid or a random search are counted, adaptive's come on top.
    See `budget` for all hardware together."""
    time: Annotated[PositiveFloat | None, BeforeValidator(span_s)] = None
    """At most about this long: no trial begins that would not end in it. `90m`, `2h`, or seconds."""
    gpu_hours: PositiveFloat | None = None
    """At most this many on each kind of hardware: hours of trials × GPUs of a node, one where it has none."""
    budget: Literal["per_hardware", "per_sweep"] = "per_hardware"
    """Whether `trials` and `gpu_hours` are of each kind of hardware (and of each model, where nodes serve several), or
    of the whole sweep. Of the whole, each begins with its share, and what a search that stops by itself leaves goes to
    the others."""
    finalists: Annotated[int, Field(ge=0)] | None = None
    """How many of the best are launched again until the winner group is known; when absent 3 for adaptive, else 0."""
    replicates: PositiveInt = 1
    """Launches of each config (grid, random); launches of each finalist, then at least 3."""
    baseline: tuple[str, ...] = ("defaults", "production")
    """Names of configs that are tried first, where the matrix has them, so that gains are stated against them."""
    anchor_every: PositiveInt | None = 16
    """Launch the first baseline again after each so many trials, to see drift; None: never."""
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    """Configs that differ by less than this share are equally good."""
    seed: int = 0
    """Seed of the order of trials."""

    @model_validator(mode="after")
    def _limited(self) -> "SearchSpec":
        if self.budget == "per_sweep" and self.trials is None and self.gpu_hours is None:
            raise ValueError("budget per_sweep needs trials or gpu_hours, which it is of; time is of the clock")
        return self
