"""The base of all records, and a distribution of a figure."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tokenpeak.names import NAME

FORMAT_VERSION = 3
PathName = Annotated[str, Field(pattern=NAME)]


class Record(BaseModel):
    """A frozen part of the raw format that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Distribution(Record):
    """A metric over `n` requests (or gaps, or ticks); all None when n is 0. An import may not know n: None."""

    n: int | None
    mean: float | None = None
    std: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
