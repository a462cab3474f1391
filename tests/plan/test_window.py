"""Hours in which production may be away."""

from datetime import UTC, datetime

import pytest

from tokenpeak.spec.window import parse_window


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-11-20T19:29:59", False),
        ("2026-11-20T19:30:00", True),
        ("2026-11-20T23:29:59", True),
        ("2026-11-20T23:30:00", False),
    ],
)
def test_window_is_in_its_own_zone(now: str, is_open: bool) -> None:
    """Five and a half hours east, one at night is half past seven in the evening in UTC."""
    window = parse_window("01:00-05:00 Asia/Kolkata")

    assert is_open == (window.current(at(now)) is not None)


def test_window_past_midnight() -> None:
    """A window may end on the day after it began, and is open on both sides of midnight."""
    window = parse_window("22:00-05:30 UTC")
    night = (at("2026-11-20T22:00"), at("2026-11-21T05:30"))

    assert [night, night] == [window.current(at("2026-11-20T23:00")), window.current(at("2026-11-21T05:00"))]
    assert at("2026-11-21T22:00") == window.next_opening(at("2026-11-21T05:00"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("01:00-05:00", "write hours and a time zone"),
        ("1-5 UTC", "write hours and a time zone"),
        ("01:00-05:00 Asia/Kolkatta", "Did you mean Asia/Kolkata"),
        ("25:00-05:00 UTC", "hour must be in 0..23"),
        ("01:00-01:00 UTC", "begins when it ends"),
    ],
)
def test_what_is_no_window(text: str, complaint: str) -> None:
    """The complaint names the value and what is valid."""
    with pytest.raises(ValueError, match=complaint):
        parse_window(text)
