"""The ranking page's sentences and caption."""

import re

from judge.raw import Raw
from judge.text import HW, UNIT, Figures, N, Site, must, pattern


@pattern(
    r"(?P<ok>\d+) configs? gave a result on (?P<kinds>\d+) kinds? of hardware(?:, (?P<failed>\d+) "
    r"failed)?\."
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
    r"(?:none holds the SLO|(?P<may>of those that may be run, )?(?P<n>\d+|no) others?(?: is| are) "
    r"(?P<how>tied with|within (?P<margin>\d+)% of) the best)\.(?: This sweep shows differences above \d+%\.)?"
)
def span(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    hw = found["hw"] or site.only
    values = raw.means(hw, raw.metric).values()
    yield found["worst"], min(values)
    yield found["best"], max(values)
    allowed = raw.may_run(hw)
    if not found["n"]:
        must(not allowed, "a config holds the SLO")
        return
    must(bool(found["may"]) == (len(allowed) < len(values)), "whether all may be run")
    yield found["n"].replace("no", "0"), len(raw.group(hw, allowed)) - 1
    if found["margin"]:
        yield found["margin"], raw.margin * 100


def _configs(raw: Raw, hw: str) -> int:
    return len({trial["config"]["config_id"] for trial in raw.trials if trial["hardware"] == hw})
