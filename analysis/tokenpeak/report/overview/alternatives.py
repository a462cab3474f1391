"""Alternatives to the decision's config: others that may be run, close in the objective, that gain much elsewhere."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from tokenpeak.metrics import inner, metric_of, title_of
from tokenpeak.paths import slug
from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.blocks.digits import percent
from tokenpeak.report.blocks.metric_columns import trial_href
from tokenpeak.report.config_energy import ESTIMATED, JOULE
from tokenpeak.report.load.load_levels import level_means
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView, latency_words

MOST = 2
"""How many are named."""
MOST_LOSS = 0.1
"""The share of the objective that an alternative may give up."""
LEAST_GAIN = 0.15
"""The share that it must gain in something else."""
FREE_LOSS = 0.02
"""A loss as small as this weighs nothing: gains are ranked by gain ÷ (loss + this)."""
GAINED = {
    JOULE: ("energy per token", "lower"),
    "cost_per_1m_output_tok": ("cost per token", "lower"),
    "output_tok_per_s": ("output throughput", "higher"),
    "request_output_tok_per_s_p50": ("speed of a request", "higher"),
}
"""Columns of the objective's run in which an alternative may be better, beside the latencies that the SLO limits:
words, and which way is better."""


@dataclass(frozen=True, kw_only=True)
class Trade:
    """A config with what it gains and gives up against the decision's, as shares; the gain is positive."""

    row: dict[str, Any]
    loss: float
    gain: float
    words: str


def alternatives(view: SweepView, ranked: Ranking) -> list[Trade]:
    """The configs that may be run with the best trades, at most `MOST`, to one to run, to keep or that is ahead."""
    recommended = ranked.chosen
    if recommended is None or ranked.decision.outcome not in ("run", "keep", "ahead"):
        return []
    found: dict[str, Trade] = {}
    best_score: dict[str, float] = {}
    elsewhere = _elsewhere(view, ranked)
    allowed = (pl.col("state") == "ok") & pl.col("kept_back").is_null()
    others = ranked.frame.filter(allowed, pl.col("config_id") != recommended["config_id"])
    for row in others.iter_rows(named=True):
        loss = _loss(view, recommended, row)
        if loss > MOST_LOSS:
            continue
        for gain, words in [*_gains(view, recommended, row), *elsewhere.get(row["config_id"], ())]:
            score = gain / (max(loss, 0.0) + FREE_LOSS)
            if gain >= LEAST_GAIN and score > best_score.get(row["config_id"], 0.0):
                best_score[row["config_id"]] = score
                found[row["config_id"]] = Trade(row=row, loss=loss, gain=gain, words=words)
    chosen = sorted(found, key=lambda config_id: -best_score[config_id])[:MOST]
    return [found[config_id] for config_id in chosen]


def _loss(view: SweepView, recommended: dict[str, Any], row: dict[str, Any]) -> float:
    """The share of the objective that the config gives up; negative where it is better."""
    ratio = row["objective"] / recommended["objective"]
    return float(1 - ratio if view.higher_is_better else ratio - 1)


def _gains(view: SweepView, recommended: dict[str, Any], row: dict[str, Any]) -> list[tuple[float, str]]:
    """Gains of the config under the objective's load, as shares with their words."""
    found = []
    latencies = {name: (inner(latency_words(name)), "lower") for name in view.latency_columns}
    for name, (words, direction) in (latencies | _gained(view)).items():
        ours, theirs = row.get(name), recommended.get(name)
        if name == view.spec.objective.metric or not ours or not theirs:
            continue
        gain = 1 - ours / theirs if direction == "lower" else ours / theirs - 1
        sign = -1 if direction == "lower" else 1
        found.append((float(gain), f"{percent(sign * gain)} {words}"))
    return found


def _gained(view: SweepView) -> dict[str, tuple[str, str]]:
    """GAINED without an estimated energy, which is throughput again."""
    apart = JOULE if ESTIMATED in view.runs["energy_source"] else ""
    return {name: words for name, words in GAINED.items() if name != apart}


def _elsewhere(view: SweepView, ranked: Ranking) -> dict[str, list[tuple[float, str]]]:
    """Gains of each config at other loads with a fixed number of users, as shares with their words."""
    assert ranked.chosen is not None, "alternatives are to a config"
    workload, level = view.spec.objective_run()
    means = level_means(view, ranked.hardware).filter(
        ~pl.col("open"), ~((pl.col("workload_name") == workload) & (pl.col("level_label") == level))
    )
    place = ["workload_name", "level_label"]
    speed = throughput_column(view.spec)
    mine = means.filter(config_id=ranked.chosen["config_id"]).select(*place, mine=speed)
    both = means.join(mine, on=place, maintain_order="left").drop_nulls(["mine", speed])
    several = len(view.spec.workloads) > 1
    found: dict[str, list[tuple[float, str]]] = {}
    for each in both.iter_rows(named=True):
        gain = each[speed] / each["mine"] - 1
        at = f"{each['workload_name']}, {each['level_label']}" if several else each["level_label"]
        found.setdefault(each["config_id"], []).append((gain, f"{percent(gain)} {inner(title_of(speed))} at {at}"))
    return found


def alternatives_table(view: SweepView, ranked: Ranking) -> Table | None:
    """The alternatives with what they trade; None where none is worth naming."""
    found = alternatives(view, ranked)
    recommended = ranked.chosen
    if not found or recommended is None:
        return None
    own = metric_of(view.spec.objective.metric)
    shown = {name: latency_words(name) for name in view.latency_columns}
    shown |= {JOULE: "J/token"} if JOULE in _gained(view) else {}
    rows = []
    for each in found:
        changes = {
            name: (each.row[name] / recommended[name] - 1) * 100
            if each.row.get(name) and recommended.get(name)
            else None
            for name in shown
        }
        ratio = each.row["objective"] / recommended["objective"] - 1
        rows.append(
            {
                "label": each.row["label"],
                "trade": each.words,
                "objective": ratio * 100,
                "trial_id": each.row["trial_id"],
                **changes,
            }
        )
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(href=trial_href(pl.col("trial_id")))
    title = own[0].title if own else view.metric_title
    return table(
        frame,
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="trade", title="Gains"),
            Column(key="objective", title=title, unit="%", kind="number", digits=1, signed=True),
            *(
                Column(key=name, title=words, unit="%", kind="number", digits=0, signed=True)
                for name, words in shown.items()
                if name != view.spec.objective.metric and frame[name].is_not_null().any()
            ),
        ],
        name=f"alternatives-{slug(ranked.hardware)}",
        title=f"Alternatives{view.where(ranked.hardware)}",
        hrefs={"label": "href"},
        span="half",
        note=f"Configs that may be run: at most {MOST_LOSS:.0%} worse than {ranked.chosen_words} and at least "
        f"{LEAST_GAIN:.0%} better in something else; at most {MOST} are named.",
    )
