"""The interactions page's sentences and captions."""

import re
from itertools import combinations, product

from judge import effects
from judge.raw import Raw
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


Place = tuple[str | None, ...]


def _cells(raw: Raw, drawn: list[str], others: list[str]) -> list[dict[Place, set[Place]]]:
    """On each hardware, by the values of the axes that are drawn: the values of the others of configs with a result."""
    found = []
    for hw in raw.hardware:
        cells: dict[Place, set[Place]] = {}
        for label in raw.means(hw, raw.metric):
            config = raw.config(hw, label)["choices"]
            place = tuple(config.get(axis) for axis in drawn)
            cells.setdefault(place, set()).add(tuple(config.get(axis) for axis in others))
        found.append({place: own for place, own in cells.items() if None not in place})
    return found


@pattern(
    rf"A cell: the mean in .+? at (?P<level>{LEVEL}), its difference from (?P<base>.+?), and how many configs "
    r"\(n\)(?:; lower is better)?\. Blue is better; colours end at ±(?P<widest>\d+)%\."
    r"(?P<lost> n=a of b: the other configs of the b have no result\.)?"
    r"(?P<mixed> \*: other cells differ from this one in more than the two axes\.)?"
    r"(?P<untried> Hatched: not tried\.)?(?: Outlined: no result\.)?"
)
def heatmap_legend(site: Site, found: re.Match[str]) -> Figures:
    """Whether some pair has a cell that was not tried, or cells of different settings of the other axes."""
    raw = site.raw
    must(found["level"].split(", ")[-1] == raw.level, "the objective's level")
    must(found["base"] == raw.baseline_phrase(site.only), "the baseline")
    widest = max(
        abs(value / raw.baseline(hw)[1] - 1) for hw in raw.hardware for value in raw.means(hw, raw.metric).values()
    )
    yield found["widest"], max(0.1, widest) * 100
    axes = [axis for axis, choices in raw.axes.items() if len(choices) > 1]
    mixed = untried = False
    for pair in combinations(axes, 2):
        others = [axis for axis in axes if axis not in pair]
        cells = _cells(raw, list(pair), others)
        mixed |= bool(others) and any(own != set.union(*each.values()) for each in cells for own in each.values())
        tried = {
            (trial["hardware"], *(str(trial["config"]["choices"].get(axis)) for axis in pair)) for trial in raw.trials
        }
        untried |= any(
            (hw, first, second) not in tried
            for hw in raw.hardware
            for first, second in product(*(raw.axes[axis] for axis in pair))
        )
    must(bool(found["mixed"]) == mixed, "whether cells are of different settings")
    must(bool(found["untried"]) == untried, "whether every cell was tried")
    return iter(())
