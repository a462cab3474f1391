"""The interactions page's sentences and captions."""

import re

from judge import effects
from judge.text import HW, LEVEL, Figures, P, Site, must, pattern


@pattern(
    rf"On (?P<hw>{HW}), (?:⟦(?P<axis>\w+)⟧ matters(?P<most> most)?: ⟦(?P<best>[^⟧]+)⟧ gives "
    rf"(?P<gain>{P}) over ⟦(?P<worst>[^⟧]+)⟧ ?, "
    r"other axes being equal(?: \((?P<rest>[^)]+)\))?\.(?: What ⟦(?P<without>[^⟧]+)⟧ does is not "
    r"known: it changed together with "
    r"others\.)?|no axis is shown to matter: results vary by as much without it, or are too few "
    r"\(seen: (?P<seen>[^)]+)\)\.)"
)
def effect_words(site: Site, found: re.Match[str]) -> Figures:
    raw, hw = site.raw, found["hw"]
    gains = effects.axis_gains(raw, hw)
    if found["seen"]:
        must(not any(matters for *_, matters in gains.values()), "an axis matters")
        yield from _listed(found["seen"], gains)
        return
    gain, best, worst, matters = gains[found["axis"]]
    must(matters, "it does not matter")
    must((found["best"], found["worst"]) == (best, worst), f"{best} over {worst}")
    yield found["gain"], gain * 100
    must(gain == max(each for each, *_, does in gains.values() if does), "another matters more")
    without = effects.inseparable(raw, hw)
    must((found["without"] or "") == ", ".join(without), f"{without} cannot be separated")
    must(bool(found["most"]) == (not without), "whether it matters most")
    shown, _, unshown = (found["rest"] or "").partition("not shown to matter: ")
    yield from _listed(shown, gains)
    named = set(re.findall(r"(\w+)=", shown))
    must(named == {axis for axis, (*_, does) in gains.items() if does} - {found["axis"]}, f"{named} matter")
    must(
        set(unshown.split(", ")) - {""} == {axis for axis, (*_, does) in gains.items() if not does},
        f"{unshown} are not shown to matter",
    )


def _listed(text: str, gains: dict[str, tuple[float, str, str, bool]]) -> Figures:
    for axis, value, shown in re.findall(rf"(\w+)=(\S+) ({P})", text):
        must(gains[axis][1] == value, f"{axis} is best at {gains[axis][1]}")
        yield shown, gains[axis][0] * 100


@pattern(
    r"Each cell: the mean over the other axes, of the configs that have a result, against (?P<base>.+?); "
    r"blue is better, colours end at "
    r"±(?P<widest>\d+)%\. "
    r"Hatched: not tried\. Rows that change colour differently mean that the settings interact\."
)
def matrix_caption(site: Site, found: re.Match[str]) -> Figures:
    raw = site.raw
    widest = max(
        abs(value / raw.baseline(hw)[1] - 1) for hw in raw.hardware for value in raw.means(hw, raw.metric).values()
    )
    yield found["widest"], max(0.1, widest) * 100


@pattern(
    r"Difference in .+? from the mean of its axis, other axes being equal, by least squares over configs\. "
    r"(?:Bars: 95% intervals \(t\) from what main effects leave unexplained\.|Too few launches for an interval\.)"
    r"(?: Not estimable, and in no mean: (?P<names>.+)\.)?"
)
def effects_caption(site: Site, found: re.Match[str]) -> Figures:
    return iter(())


@pattern(
    rf".+? at {LEVEL}, (?:each cell the mean over (?P<others>[^;]+?), of (?P<least>\d+)(?: to (?P<most>\d+))? configs?"
    r"|a cell is a config); percent against [^.]+?(?:, lower is better)?\."
    r"(?: Where n is a of b, the others of the b configs have no result\.)?"
    r"(?P<mixed> \*: of other settings of those axes than other cells, so more than these two axes differs\.)?"
    r"(?: Hatched: not tried\.)?(?: Outlined: no result\.)?"
)
def heatmap_caption(site: Site, found: re.Match[str]) -> Figures:
    """The axes of the mean leave the two that are drawn; how many configs a cell has, and whether cells differ."""
    raw = site.raw
    if found["others"] is None:
        return
    others = found["others"].split(", ")
    must(set(others) <= set(raw.axes), "axes")
    drawn = [axis for axis, choices in raw.axes.items() if len(choices) > 1 and axis not in others]
    counts, settings = set(), []
    for hw in raw.hardware:
        cells: dict[tuple[str | None, ...], set[tuple[str | None, ...]]] = {}
        for label in raw.means(hw, raw.metric):
            config = raw.config(hw, label)["choices"]
            place = tuple(config.get(axis) for axis in drawn)
            cells.setdefault(place, set()).add(tuple(config.get(axis) for axis in others))
        cells = {place: own for place, own in cells.items() if None not in place}
        counts |= {len(own) for own in cells.values()}
        settings.append(list(cells.values()))
    yield found["least"], min(counts)
    yield found["most"] or found["least"], max(counts)
    must(
        bool(found["mixed"]) == any(own != set.union(*cells) for cells in settings for own in cells),
        "whether cells are of different settings",
    )
