"""Span of time, as a person writes one."""

import re


def span_s(raw: object) -> object:
    """A span such as `90m`, `2h` or `1h30m` in seconds; a number is seconds already."""
    if not isinstance(raw, str):
        return raw
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", raw.replace(" ", ""))
    if parts is None or not any(parts.groups()):
        raise ValueError(f"{raw!r} is no span of time; write 90m, 2h, 1h30m or seconds")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return hours * 3600 + minutes * 60 + seconds
