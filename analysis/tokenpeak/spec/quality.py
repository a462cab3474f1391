"""Quality of a sweep's configs: the reference whose answers are compared with, and the margin."""

from pydantic import Field

from tokenpeak.spec.workload import Declaration

MARGIN_NATS = 0.02
"""Nats a token above the noise floor; an eight-bit weight format stays below, a four-bit one is at about this."""
MEASUREMENT_LIMIT_S = 300.0
"""A measurement that takes longer is broken off, and the launch's quality is unknown."""


class QualitySpec(Declaration):
    """After its load, each launch is compared with a reference; one that does not pass is not ranked."""

    reference: str = Field(min_length=1)
    """The file that `tokenpeak quality record` wrote; a relative path counts from the working folder."""
    margin: float = Field(default=MARGIN_NATS, gt=0)
    """How far the answers may be from the reference's, above the noise floor, in nats a token."""
