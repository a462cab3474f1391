"""What would be worth trying next, read from the recommended config's place on its axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpeak.records.config import GROUPS_OF_GPUS
from tokenpeak.report.blocks import Part, Sentence, code, link, note, strong
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView


@dataclass(frozen=True)
class _Edge:
    """The recommended config's value where it is the last that was tried, and the one that would come next."""

    axis: str
    value: float
    is_highest: bool
    beyond: float | None

    def parts(self) -> list[Part]:
        """That it is the last, and what to try."""
        last = "highest" if self.is_highest else "lowest"
        tried = f"; try {self.beyond:g}. " if self.beyond is not None else ". "
        return [code(f"{self.axis}={self.value:g}"), f" was the {last} tried{tried}"]


def _beyond(own: float, tried: Sequence[float], *, is_highest: bool) -> float | None:
    """Twice or half of a whole number whose axis grows by a whole factor, as 128, 256, 512 does; None for others."""
    nearest = (max if is_highest else min)(value for value in tried if value != own)
    if min(own, nearest) <= 0:
        return None
    found = own * 2 if is_highest else own / 2
    return found if all(value.is_integer() for value in (own, max(own, nearest) / min(own, nearest), found)) else None


def next_steps(view: SweepView, ranked: Ranking) -> Sentence | None:
    """Where its value is the last that was tried, and how to confirm it; None where there is nothing to say."""
    recommended = ranked.recommended
    if recommended is None:
        return None
    whole = view.gpus_used(ranked.hardware).get(str(recommended["config_id"])) == view.gpus_of(ranked.hardware)
    edges = []
    for axis, names in view.axes.items():
        value = recommended.get(f"axis_{axis}")
        if len(names) < 2 or value is None or not all(_numeric(name) for name in names):
            continue
        own, tried = float(str(value)), [float(name) for name in names]
        # Nothing counts less than one, and no engine takes more GPUs than there are.
        below = own == min(tried) and own != 1
        above = own == max(tried) and not (whole and axis in GROUPS_OF_GPUS)
        if below or above:
            edges.append(_Edge(axis, own, above, _beyond(own, tried, is_highest=above)))
    parts: list[Part] = [part for edge in edges for part in edge.parts()]
    if not ranked.replicated and recommended["gain"] is not None:
        parts += ["Confirm the gain with ", code("search: {replicates: 3}"), ". "]
    if ranked.ties.height:
        parts.append("The others of its tie stand in the ")
        parts.append(link("ranking", "ranking.html"))
        parts.append(".")
    return note(strong("Next: "), *parts) if parts else None


def _numeric(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
