"""What a spec says of answers: how they are compared with a reference's."""

from pathlib import Path

from pydantic import Field, PositiveInt

from tokenpeak.spec import Declaration

MARGIN_NATS = 0.02
"""Nats a token above the noise floor."""
TOKENS = 60_000
"""That a launch processes for its measurement, about."""
MEASUREMENT_LIMIT_S = 300.0
"""A measurement that takes longer is broken off, and the launch's quality is unknown."""


class QualitySpec(Declaration):
    """Comparison of answers, after the load; a config whose answers do not pass is not recommended."""

    reference: str | None = Field(default=None, min_length=1)
    """The name of a config, such as `production`, or a file that `tokenpeak quality record` wrote, from the working
    folder; None: of production's and the defaults the one of higher precision."""
    margin: float = Field(default=MARGIN_NATS, gt=0)
    """How far the answers may be from the reference's, above the noise floor, in nats a token."""
    tokens: int = Field(default=TOKENS, ge=10_000, le=10_000_000)
    """That a measurement processes, about, beside the tasks: more of them fill a longer context."""
    tasks: str | None = Field(default=None, min_length=1)
    """A file of labelled tasks, a JSON line each, from the working folder."""


class QualityJob(Declaration):
    """Measurement of one launch's answers. All launches that are compared are asked the same."""

    tokens: PositiveInt = TOKENS
    """That a pass processes, about, tasks apart."""
    context: PositiveInt | None = None
    """The longest prompt and answer of any launch that is compared; None: of this one."""
    passes: PositiveInt = 1
    """2: the same again with fewer requests at a time, for the noise floor of a reference."""
    tasks: Path | None = None
    """A file of labelled tasks."""
