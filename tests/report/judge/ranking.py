"""The ranking page's sentences and caption."""

import re

from judge.raw import Raw
from judge.text import HW, LEVEL, UNIT, Figures, N, Site, must, pattern


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


@pattern(
    rf"(?P<title>[A-Z][\w ]+?) at (?P<level>{LEVEL}) of (?P<ok>\d+) of (?P<all>\d+) configs; labels "
    rf"give (?P<axes>[^.]+)\."
    r"(?P<band> Blue band: where those tied with the best lie\. Diamond: recommended\.)?"
    r"(?: Dashed: (?P<base>[^.]+)\.)? "
    r"(?:Each was launched once: no interval, and differences below (?P<margin>\d+)% are not distinguished\."
    r"|Bars: 95% intervals of means over launches, by a spread that is pooled over all configs\.)"
    r"(?: The (?P<drawn>\d+) best are drawn; the table has all (?P<rows>\d+)\.)?"
)
def ranking_caption(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    hw = next(
        each
        for each in raw.hardware
        if len(raw.means(each, raw.metric)) == int(found["ok"]) and _configs(raw, each) == int(found["all"])
    )
    must(found["axes"] == " / ".join(raw.axes), "the axes")
    must(bool(found["band"]) == (len(raw.group(hw)) > 1), "a band")
    must(found["base"] in (None, raw.baseline_phrase(hw)), "the baseline")
    if found["drawn"]:
        must(int(found["drawn"]) < int(found["rows"]) == int(found["all"]), "how many are drawn")
    if found["margin"]:
        yield found["margin"], raw.margin * 100


def _configs(raw: Raw, hw: str) -> int:
    return len({trial["config"]["config_id"] for trial in raw.trials if trial["hardware"] == hw})
