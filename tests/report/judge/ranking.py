"""The ranking page's sentences and caption."""

import re

from judge.raw import Raw
from judge.text import HW, UNIT, Figures, N, Site, must, pattern


@pattern(
    r"(?P<ok>\d+) configs? gave a result on (?P<kinds>\d+) kinds? of hardware(?:, (?P<failed>\d+) did "
    r"not start or broke off)?\."
)
def standing(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    yield found["ok"], sum(len(raw.means(hw, raw.metric)) for hw in raw.hardware)
    yield found["kinds"], len(raw.hardware)
    if found["failed"]:
        broke = {(each["hardware"], each["config"]["config_id"]) for each in raw.trials if each["status"] == "failed"}
        yield found["failed"], len(broke)


@pattern(
    rf"From worst to best they span (?P<worst>{N}) to (?P<best>{N}) (?:{UNIT})(?: on (?P<hw>{HW}))?; "
    r"(?P<n>\d+|none)(?: others?)?(?: is| are) (?P<how>tied with|within (?P<margin>\d+)% of) the best\."
)
def span(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    hw = found["hw"] or site.only
    values = raw.means(hw, raw.metric).values()
    yield found["worst"], min(values)
    yield found["best"], max(values)
    yield found["n"].replace("none", "0"), len(raw.group(hw)) - 1
    if found["margin"]:
        yield found["margin"], raw.margin * 100


def tied_with_median(raw: Raw, hw: str) -> bool:
    """Whether gains are against the median, and half of the configs or more tie."""
    group = raw.group(hw)
    return raw.baseline(hw)[2] is None and 1 < len(group) and 2 * len(group) >= len(raw.means(hw, raw.metric))


def group(raw: Raw, hw: str, text: str) -> Figures:
    """How many of the configs tie."""
    shown = re.search(r"(\d+) of (\d+) configs (?:tie|are within (\d+)% of the best)", text)
    assert shown is not None
    yield shown[1], len(raw.group(hw))
    yield shown[2], len(raw.means(hw, raw.metric))
    must(bool(shown[3]) == (raw.half(hw, 1) is None), "whether they tie by intervals")
    if shown[3]:
        yield shown[3], raw.margin * 100


def _configs(raw: Raw, hw: str) -> int:
    return len({trial["config"]["config_id"] for trial in raw.trials if trial["hardware"] == hw})
