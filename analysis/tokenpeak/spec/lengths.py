"""Lengths of prompts and answers in tokens, as a spec declares them."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from tokenpeak.spec import Declaration


class LengthDistribution(Declaration):
    """Lengths in tokens drawn independently for each request, clipped to `low`..`high`."""

    distribution: Literal["uniform", "normal", "lognormal", "table"]
    """How lengths are drawn."""
    mean: PositiveFloat | None = None
    """For `normal` and `lognormal`: the mean length."""
    std: PositiveFloat | None = None
    """For `normal` and `lognormal`: the standard deviation of the length."""
    low: PositiveInt = 1
    """The shortest length."""
    high: PositiveInt | None = None
    """The longest length; `uniform` needs it."""
    table: tuple[tuple[PositiveInt, PositiveFloat], ...] = ()
    """For `table`: pairs of a length and its weight."""

    @model_validator(mode="after")
    def _complete(self) -> "LengthDistribution":
        if self.distribution == "table" and not self.table:
            raise ValueError("distribution 'table' needs table: [[length, weight], …]")
        if self.distribution in ("normal", "lognormal") and (self.mean is None or self.std is None):
            raise ValueError(f"distribution '{self.distribution}' needs mean and std")
        if self.distribution == "uniform" and self.high is None:
            raise ValueError("distribution 'uniform' needs high")
        return self


Length = PositiveInt | LengthDistribution
