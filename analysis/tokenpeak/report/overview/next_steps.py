"""What to do next with the recommended config: what would confirm it, or make it better."""

from collections.abc import Sequence

from tokenpeak.records.sweep import GROUPS_OF_GPUS
from tokenpeak.report.blocks.block import Part, Steps, code, link
from tokenpeak.report.load import rates
from tokenpeak.report.overview.gain import precision_gain, random_weights
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView


def _beyond(own: float, tried: Sequence[float], *, is_highest: bool) -> float | None:
    """Twice or half of a whole number whose axis grows by a whole factor, as 128, 256, 512 does; None for others."""
    nearest = (max if is_highest else min)(value for value in tried if value != own)
    if min(own, nearest) <= 0:
        return None
    following = own * 2 if is_highest else own / 2
    is_whole = all(value.is_integer() for value in (own, max(own, nearest) / min(own, nearest), following))
    return following if is_whole else None


def _edges(view: SweepView, ranked: Ranking, recommended: dict[str, object]) -> list[tuple[Part, ...]]:
    """Each axis of which the recommended config has the last value that was tried, and the one that comes next."""
    whole = view.gpus_used(ranked.hardware).get(str(recommended["config_id"])) == view.gpus_of(ranked.hardware)
    edges: list[tuple[Part, ...]] = []
    for axis, names in view.axes.items():
        value = recommended.get(f"axis_{axis}")
        if len(names) < 2 or value is None or not all(_numeric(name) for name in names):
            continue
        own, tried = float(str(value)), [float(name) for name in names]
        # Nothing counts less than one, and no engine takes more GPUs than there are.
        below = own == min(tried) and own != 1
        above = own == max(tried) and not (whole and axis in GROUPS_OF_GPUS) and not _beyond_the_load(view, axis, own)
        if below or above:
            beyond = _beyond(own, tried, is_highest=above)
            further = f"; try {beyond:g}." if beyond is not None else "."
            last = "highest" if above else "lowest"
            edges.append((code(f"{axis}={own:g}"), f" was the {last} tried{further}"))
    return edges


def _beyond_the_load(view: SweepView, axis: str, own: float) -> bool:
    """Whether the objective's load has no more requests in flight than this, so that room for more changes nothing."""
    most = view.objective_runs()["concurrency"].max() if axis == "max_num_seqs" else None
    return isinstance(most, int | float) and most <= own


def next_steps(view: SweepView, ranked: Ranking) -> Steps | None:
    """Quality, confirmation, values beyond the tried ones, the highest rate and a price; None where nothing is left."""
    recommended = ranked.recommended
    if recommended is None or view.spec.endpoint is not None:
        return None
    title = f"Next{view.where(ranked.hardware)}"
    edges = _edges(view, ranked, recommended)
    if view.record.imported is not None:
        return Steps(steps=tuple(edges), title=title, span="half") if edges else None
    gain = precision_gain(view, ranked)
    steps: list[tuple[Part, ...]] = []
    if (gain is not None and gain.changes and gain.quality != "pass") or random_weights(view, ranked):
        steps.append(("Measure its answers before it serves anybody: ", code("tokenpeak quality record --help"), "."))
    gained = recommended["gain"]
    if not ranked.replicated and isinstance(gained, float):
        what = "gain" if gained > 0 else "ranking"
        steps.append((f"Confirm the {what}: ", code("search: {replicates: 3}"), " launches each config three times."))
    if ranked.ties.height:
        steps.append(("See what else ties, in the ", link("ranking", "ranking.html"), "."))
    steps += edges
    if not rates.rated_workloads(view):
        steps.append(("Find its highest rate within an SLO: ", code("tokenpeak sweep --sweep rates"), "."))
    if not view.spec.energy.has_price:
        steps.append(("Say what a node costs: ", code("tokenpeak report --param price_per_hour=2.5"), "."))
    return Steps(steps=tuple(steps), title=title, span="half") if steps else None


def _numeric(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
