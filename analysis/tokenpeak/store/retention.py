"""Retention of archives: how many are kept, or for how long."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tokenpeak.errors import InputError

_KEEP = re.compile(r"([1-9]\d{0,6})(d?)")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An archive of the folder, as far as retention asks."""

    path: Path
    started_at: datetime
    is_ended: bool
    """Its sweep was completed: it neither runs nor waits to be resumed."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How many archives are kept, or for how long."""

    count: int | None = None
    age: timedelta | None = None

    @classmethod
    def parsed(cls, text: str) -> "Retention":
        """`20`: the newest twenty; `90d`: those of the last ninety days. InputError for anything else."""
        match = _KEEP.fullmatch(text)
        if match is None:
            raise InputError(f"--keep is {text!r}; give how many archives (20), or for how many days (90d).")
        number = int(match[1])
        return cls(age=timedelta(days=number)) if match[2] else cls(count=number)

    def goes(self, archives: Sequence[Kept], now: datetime) -> list[Kept]:
        """The archives that go, oldest first; sweeps that run or can be resumed never do, and count for nothing."""
        ended = sorted((one for one in archives if one.is_ended), key=lambda one: (one.started_at, one.path))
        if self.age is not None:
            return [one for one in ended if one.started_at < now - self.age]
        assert self.count is not None
        return ended[: max(0, len(ended) - self.count)]
