"""Verdict of a run: valid, invalid with its reasons, or not judged."""

from collections.abc import Sequence
from typing import Literal

from tokenpeak.records.base import Record


class Reason(Record):
    """Why a run is invalid: a code, the measured value and its limit, and a sentence."""

    code: str
    text: str
    value: float | None = None
    limit: float | None = None


OVERLOADED = "overloaded"
"""Code of the reason that a run's rate was more than the engine could serve."""
QUALITY_FAILED = "quality_failed"
QUALITY_UNKNOWN = "quality_unknown"
"""Codes of the reasons that the launch's answers are worse than the reference's, or are not known to be as good."""

BY_THE_ENGINE = frozenset({OVERLOADED, "preemptions", QUALITY_FAILED, QUALITY_UNKNOWN})
"""Codes of reasons that lie in the engine under this load; all others mean that a run was measured badly."""


class Verdict(Record):
    """Whether a run may be ranked."""

    status: Literal["valid", "invalid", "not_judged"]
    reasons: tuple[Reason, ...] = ()

    @property
    def well_measured(self) -> bool:
        """Whether the run describes the engine: it is not invalid, or for no reason but the engine's own."""
        codes = {reason.code for reason in self.reasons}
        return self.status != "invalid" or (bool(codes) and codes <= BY_THE_ENGINE)

    @property
    def overloaded(self) -> bool:
        """Whether a well measured run's rate was more than the engine could serve."""
        return self.well_measured and any(reason.code == OVERLOADED for reason in self.reasons)

    def with_reasons(self, reasons: Sequence[Reason]) -> "Verdict":
        """The verdict with more reasons against the run; unchanged when there are none."""
        return Verdict(status="invalid", reasons=(*self.reasons, *reasons)) if reasons else self

    @property
    def word(self) -> str:
        """The status in a word; a well measured run at a rate that was too high is overloaded."""
        return OVERLOADED if self.overloaded else self.status.replace("_", " ")
