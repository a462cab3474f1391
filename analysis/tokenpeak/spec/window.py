"""Hours of the day in which production may be away (`01:00-05:00 Asia/Kolkata`), and spans of time (`1h30m`)."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

from tokenpeak.errors import suggestion

_FORM = re.compile(r"(\d{1,2}):(\d{2})\s*[-–]\s*(\d{1,2}):(\d{2})\s+(\S+)")
_DAYS_LOOKED_AT = (-1, 0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A span of local time that comes every day; one that ends before it begins goes past midnight."""

    begins: time
    ends: time
    zone: str

    def current(self, now: datetime) -> tuple[datetime, datetime] | None:
        """When the window that is open at `now` opened and will close, in UTC; None when it is shut."""
        return next((span for span in self._spans(now) if span[0] <= now < span[1]), None)

    def next_opening(self, now: datetime) -> datetime:
        """When it opens next after `now`, in UTC."""
        return min(opens for opens, _ in self._spans(now) if opens > now)

    def _spans(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """The windows around `now` by the zone's own clock, whose days may have 23 or 25 hours."""
        today = now.astimezone(ZoneInfo(self.zone)).date()
        return [self._span(today + timedelta(days=days)) for days in _DAYS_LOOKED_AT]

    def _span(self, day: date) -> tuple[datetime, datetime]:
        last = day if self.ends > self.begins else day + timedelta(days=1)
        zone = ZoneInfo(self.zone)
        return (
            datetime.combine(day, self.begins, zone).astimezone(UTC),
            datetime.combine(last, self.ends, zone).astimezone(UTC),
        )


def parse_window(text: str) -> Window:
    """The window that `text` describes; raises ValueError saying what is wrong with it."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no window; write hours and a time zone, such as 01:00-05:00 Asia/Kolkata")
    *numbers, zone = match.groups()
    if zone not in available_timezones():
        raise ValueError(f"{text!r} names no time zone. {suggestion(zone, available_timezones())}")
    hours = [int(number) for number in numbers]
    try:
        window = Window(begins=time(hours[0], hours[1]), ends=time(hours[2] % 24, hours[3]), zone=zone)
    except ValueError as error:
        raise ValueError(f"{text!r} is no window: {error}") from error
    if window.begins == window.ends:
        raise ValueError(f"{text!r} begins when it ends; leave the window out to work at any hour")
    return window


def span_s(raw: object) -> object:
    """A span such as `90m`, `2h` or `1h30m` in seconds; a number is seconds already."""
    if not isinstance(raw, str):
        return raw
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", raw.replace(" ", ""))
    if parts is None or not any(parts.groups()):
        raise ValueError(f"{raw!r} is no span of time; write 90m, 2h, 1h30m or seconds")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return hours * 3600 + minutes * 60 + seconds
