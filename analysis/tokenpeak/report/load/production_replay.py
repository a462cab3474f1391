"""Replay of production's traffic on production's own settings: whether it is as fast as production was by its metrics.

Both are compared at the bounds of vLLM's histograms, the only places where production's distribution is known. Their
distance is Kolmogorov's: the largest difference of shares at any bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from pathlib import Path

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, note, strong, table, warning
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.view import SweepView
from tokenpeak.search.remaining import duration_text
from tokenpeak.spec.load import ReplayLoad
from tokenpeak.spec.workload import TraceWorkload
from tokenpeak.store.archive import TRAFFIC_FILE

MOST_APART = 0.1
"""A replay at most so far from production reproduces it."""
BY_CHANCE = 1.63
"""Two samples of one distribution are farther apart than this × √(1/n + 1/m) once in a hundred times (Smirnov 1948)."""
BASELINE = "production"
"""The config that has production's own settings."""
QUANTITIES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One quantity of production beside its replay."""

    quantity: str
    apart: float
    """The largest difference of shares."""
    allowed: float
    """Up to this the replay reproduces it: MOST_APART, or what chance alone may make of so few requests."""
    production_s: tuple[tuple[float, float | None], ...]
    """QUANTILES, each by the bounds of its bucket, which is all that production's page says; None: no upper one."""
    replay_s: tuple[float, ...]
    n: int
    """Requests of the replay."""

    @property
    def holds(self) -> bool:
        """Whether the replay reproduces it."""
        return self.apart <= self.allowed


@lru_cache(maxsize=8)
def reproductions(view: SweepView) -> tuple[Reproduction, ...]:
    """TTFT and TPOT of the replay on production's own settings; empty where no such run was made.

    The replay must be of the traffic as it was: all of it, at its times, on the node's kind of hardware.
    """
    traffic = view.record.production_traffic
    if traffic is None:
        return ()
    names = [plan.workload.name for plan in view.spec.workloads if _is_whole(plan.workload, plan.levels)]
    kinds = [view.record.hardware_of(node) for node in view.record.nodes if node.node == traffic.node]
    runs = view.same_requests().filter(
        pl.col("config_name") == BASELINE,
        pl.col("hardware").is_in(kinds),
        pl.col("workload_name").is_in(names),
        pl.col("level_label") == "replay",
    )
    if runs.is_empty():
        return ()
    requests = (
        view.requests.filter(
            pl.col("trial_id").is_in(runs["trial_id"].to_list()),
            pl.col("phase") == "measured",
            pl.col("error").is_null(),
        )
        .join(runs.lazy().select("trial_id", "run_index"), on=["trial_id", "run_index"])
        # As production's own count has it: from when it came, however late it was sent.
        .select("tpot_s", ttft_s=pl.col("first_token_s") - pl.col("sent_s"))
        .collect()
    )
    histograms = {"ttft_s": traffic.ttft_s, "tpot_s": traffic.tpot_s}
    return tuple(
        _reproduction(name, histogram, requests[name].drop_nulls(), traffic.requests)
        for name, histogram in histograms.items()
        if histogram and requests[name].drop_nulls().len()
    )


def _is_whole(workload: object, levels: Sequence[object]) -> bool:
    is_own = isinstance(workload, TraceWorkload) and Path(workload.path).name == TRAFFIC_FILE
    if not is_own or not isinstance(workload, TraceWorkload) or (workload.speed, workload.scale) != (1.0, 1.0):
        return False
    return any(isinstance(level, ReplayLoad) and level.requests is None for level in levels)


def _reproduction(
    quantity: str, histogram: Sequence[tuple[float, float]], replayed_s: pl.Series, observed: int
) -> Reproduction:
    n = replayed_s.len()
    apart = max(abs(share - int((replayed_s <= bound).sum()) / n) for bound, share in histogram)
    return Reproduction(
        quantity=quantity,
        apart=apart,
        allowed=max(MOST_APART, BY_CHANCE * sqrt(1 / n + 1 / max(1, observed))),
        production_s=tuple(_bucket(histogram, share) for share in QUANTILES),
        replay_s=tuple(float(replayed_s.quantile(share, "linear") or 0.0) for share in QUANTILES),
        n=n,
    )


def _in_ms(low_s: float, high_s: float | None) -> str:
    return f"above {low_s * 1000:g} ms" if high_s is None else f"{low_s * 1000:g} to {high_s * 1000:g} ms"


def _bucket(histogram: Sequence[tuple[float, float]], share: float) -> tuple[float, float | None]:
    """The bounds of the bucket in which a quantile lies."""
    for (low_s, _), (high_s, upto) in pairwise([(0.0, 0.0), *histogram]):
        if upto >= share:
            return low_s, high_s
    return histogram[-1][0], None


def not_shown(view: SweepView) -> bool:
    """Whether a workload is from production and not shown to reproduce it."""
    found = reproductions(view)
    return view.record.production_traffic is not None and not (found and all(each.holds for each in found))


def production_words(view: SweepView) -> Sentence | None:
    """Whether the workload reproduces production; None for a sweep without a workload from production."""
    traffic = view.record.production_traffic
    if traffic is None:
        return None
    found = reproductions(view)
    when = "since its start, " if traffic.source == "since_start" else "for "
    origin: list[Part] = [
        f"The workload is production's own on {traffic.node}, {when}{duration_text(traffic.seconds)}: "
        f"{number(traffic.rate_per_s)} requests/s with prompts of {number(traffic.input_tokens)} and answers of "
        f"{number(traffic.output_tokens)} tokens on average.",
    ]
    if not traffic.lengths_together:
        origin.append(" Prompts and answers were not seen together, so that each length is drawn by itself.")
    if not found:
        return warning(
            *origin,
            " ",
            strong("Not held against production"),
            ": no replay of all of it ran on production's own settings.",
        )
    allowed = max(each.allowed for each in found)
    apart = " and ".join(f"{QUANTITIES[each.quantity]} {each.apart:.2f}" for each in found)
    if all(each.holds for each in found):
        return note(
            *origin,
            " Replayed on production's own settings it ",
            strong("reproduces production"),
            f": distances are {apart}, of at most {allowed:.2f}.",
        )
    return warning(
        *origin,
        " Replayed on production's own settings it ",
        strong("does not reproduce production"),
        f": distances are {apart}, of at most {allowed:.2f}. Read every figure of it with care.",
    )


def production_replay(view: SweepView) -> list[Block]:
    """The sentence, and the quantiles behind it."""
    words = production_words(view)
    found = reproductions(view)
    if words is None or not found:
        return [words] if words is not None else []
    rows = []
    for each in found:
        row: dict[str, object] = {"quantity": QUANTITIES[each.quantity], "apart": each.apart, "n": each.n}
        for share, theirs, mine in zip(QUANTILES, each.production_s, each.replay_s, strict=True):
            row[f"production_{share}"] = _in_ms(*theirs)
            row[f"replay_{share}"] = mine * 1000
        rows.append(row)
    columns = [Column(key="quantity", title="Quantity")]
    for share in QUANTILES:
        at = f"p{share * 100:g}"
        columns += [
            Column(key=f"production_{share}", title=f"Production {at}"),
            Column(key=f"replay_{share}", title=f"Replay {at}", unit="ms", kind="number", digits=1),
        ]
    columns += [
        Column(key="apart", title="Distance", kind="number", digits=3),
        Column(key="n", title="Requests", kind="number"),
    ]
    block = table(
        pl.DataFrame(rows),
        columns,
        name=f"production-replay-{slug(view.record.production_traffic.node)}" if view.record.production_traffic else "",
        title="Production and its replay on production's own settings",
        note="Production: the bucket of its own histogram in which the quantile lies. Distance: the largest difference "
        "of shares at a bucket's bound.",
    )
    return [words, block]
