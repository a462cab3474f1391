"""Interactions of axes: what each alternative does by itself, and each pair of axes beyond that."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

import polars as pl

from tokenpeak.ranking import effects as statistics
from tokenpeak.report.blocks.block import Column, Part, Sentence, Table, answer, code, strong, table
from tokenpeak.report.blocks.digits import percent
from tokenpeak.report.ranking.standings import FEW
from tokenpeak.report.view import SweepView

CHANCE = 0.05
"""An axis, or a pair, matters where the p-value of its F test is below this."""
SHARES = {"effect": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64, "remark": pl.String}
EFFECTS = dict.fromkeys(("hardware", "axis", "alternative", "among"), pl.String) | SHARES | {"matters": pl.Boolean}
PAIRS = {"hardware": pl.String, "pair": pl.String, "cell": pl.String, **SHARES, "p_value": pl.Float64}
EFFECT_BARS = (
    "The answer above compares best with worst. Bars: 95% intervals (t) from what main effects leave unexplained."
)
NOT_ESTIMABLE = 8
"""How many alternatives without an estimate are named below the figure; its data hold all."""
EFFECT_COLUMNS = (
    Column(key="effect", title="Effect", unit="%", kind="number", digits=1, signed=True),
    Column(key="low", title="Low", unit="%", kind="number", digits=1, signed=True),
    Column(key="high", title="High", unit="%", kind="number", digits=1, signed=True),
    Column(key="n", title="Launches", kind="number"),
    Column(key="remark", title="Remark"),
)


def pairs(view: SweepView) -> list[tuple[str, str]]:
    """Every pair of axes with at least two alternatives each; the one with more alternatives goes across."""
    return [
        (first, second) if len(view.axes[first]) >= len(view.axes[second]) else (second, first)
        for first, second in combinations(varied(view), 2)
    ]


def varied(view: SweepView) -> list[str]:
    """The axes of which trials have a choice among several alternatives."""
    return [axis for axis, choices in view.axes.items() if len(choices) > 1 and f"axis_{axis}" in view.trials.columns]


@lru_cache(maxsize=32)
def statistics_of(view: SweepView, hardware: str) -> statistics.Effects:
    """The effects of the axes on the objective, from the launches on this hardware that gave a result.

    The holdout run is not among them.
    """
    trials = view.trials.filter(pl.col("hardware") == hardware, pl.col("objective") > 0, ~pl.col("holdout"))
    axes = [axis for axis in view.axes if f"axis_{axis}" in trials.columns]
    rows = trials.select("objective", *(pl.col(f"axis_{axis}").alias(axis) for axis in axes)).iter_rows()
    return statistics.effects(
        [
            ({axis: name for axis, name in zip(axes, names, strict=True) if name is not None}, objective)
            for objective, *names in rows
        ]
    )


def effects(view: SweepView) -> pl.DataFrame:
    """Each alternative's share over the mean of its axis, other axes being equal, from whatever gave a result.

    Columns: hardware, axis, alternative, among (the alternatives of that mean: those that can be compared), effect
    (null: not estimable), low, high (95%; null where nothing is left to estimate the spread), n (launches), matters
    (the axis matters by its F test), remark.

    >>> effects(sweep).select("alternative", pl.col("effect").round(2), "matters").rows()[:2]
    [('16', -0.2, True), ('64', 0.26, True)]
    """
    rows = []
    for hardware in view.hardware:
        found = statistics_of(view, hardware)
        known = {(effect.axes[0], effect.values[0]): effect for effect in found.main}
        matters = {each.axes: each.p_value is not None and each.p_value < CHANCE for each in found.importance}
        for axis, choices in view.axes.items():
            if len(choices) > 1:
                rows += [
                    {
                        "hardware": hardware,
                        "axis": axis,
                        "alternative": choice,
                        "among": ", ".join(known[axis, choice].among) if (axis, choice) in known else "",
                        **_shares(known.get((axis, choice))),
                        "matters": matters.get((axis,), False),
                    }
                    for choice in choices
                ]
    return pl.DataFrame(rows, schema=EFFECTS)


def _shares(effect: statistics.Effect | None) -> dict[str, object]:
    if effect is None or effect.ratio is None:
        launches = effect.launches if effect else 0
        return {"effect": None, "low": None, "high": None, "n": launches, "remark": "not estimable"}
    return {
        "effect": effect.ratio - 1,
        "low": effect.low - 1 if effect.low is not None else None,
        "high": effect.high - 1 if effect.high is not None else None,
        "n": effect.launches,
        "remark": "" if effect.low is not None else "too few launches for an interval",
    }


def beyond(view: SweepView) -> pl.DataFrame:
    """Effect of each pair of axes beyond those of its two, by its strongest cell.

    Columns: hardware, pair, cell (in the order of the pair; `not estimable` where no cell is), effect, low, high and n
    as `effects` has them, of that cell; p_value (F test of the whole pair; null without a test, and where no cell is
    estimable). The lowest p-value of each hardware first. Of another metric: open the archive by that as `objective`.

    >>> beyond(open_archive(EXAMPLE, objective="energy_j_per_output_tok")).select("pair", "cell").rows()
    [('max_num_seqs × max_num_batched_tokens', '16 × 2048')]
    """
    rows = []
    for hardware in view.hardware:
        found = statistics_of(view, hardware)
        p_values = {each.axes: each.p_value for each in found.importance}
        for pair in pairs(view):
            axes = pair if pair in p_values else pair[::-1]
            cells = [effect for effect in found.pairs if effect.axes == axes]
            # Of two by two alternatives all cells are equally strong, but for the last digits: the first is shown.
            estimated = [
                (round(abs(math.log(effect.ratio)), 9), effect) for effect in cells if effect.ratio is not None
            ]
            strongest = max(estimated, key=lambda each: each[0])[1] if estimated else None
            words = "not estimable"
            if strongest is not None:
                words = " × ".join(strongest.values if axes == pair else strongest.values[::-1])
                missing = sum(not effect.estimable for effect in cells)
                words += f" ({missing} of {len(cells)} not estimable)" if missing else ""
            # Where nothing can be estimated, a test of the pair says nothing of an interaction.
            p_value = p_values.get(axes) if strongest is not None else None
            shares = _shares(strongest) | ({} if strongest else {"n": sum(effect.launches for effect in cells)})
            rows.append({"hardware": hardware, "pair": " × ".join(pair), "cell": words, **shares, "p_value": p_value})
    frame = pl.DataFrame(rows, schema=PAIRS)
    return frame.sort("hardware", "p_value", nulls_last=True, maintain_order=True).drop("remark")


def inseparable(effect: pl.DataFrame, hardware: str) -> list[str]:
    """The axes of which no two launched alternatives can be compared there: they changed together with others."""
    launched = effect.filter(pl.col("hardware") == hardware, pl.col("n") > 0)
    axes = launched.group_by("axis", maintain_order=True).agg(
        several=pl.len() > 1, compared=pl.col("effect").count() > 0
    )
    return axes.filter("several", ~pl.col("compared"))["axis"].to_list()


def importance(view: SweepView, effect: pl.DataFrame) -> pl.DataFrame:
    """Axes by what their best alternative gives over the worst that it can be compared with, the largest first.

    Columns: hardware, axis, gain (share, negative where lower is better), best, worst, matters (by its F test).
    An axis of which less than two alternatives are estimable has no row.
    """
    order = pl.col("effect") * (1 if view.higher_is_better else -1)
    return (
        effect.drop_nulls("effect")
        .group_by("hardware", "axis", "among", maintain_order=True)
        .agg(
            gain=(1 + pl.col("effect").sort_by(order).last()) / (1 + pl.col("effect").sort_by(order).first()) - 1,
            best=pl.col("alternative").sort_by(order).last(),
            worst=pl.col("alternative").sort_by(order).first(),
            matters=pl.col("matters").first(),
        )
        .sort("hardware", "matters", pl.col("gain").abs(), descending=[False, True, True], maintain_order=True)
        .unique(["hardware", "axis"], keep="first", maintain_order=True)
    )


def answer_interactions(view: SweepView, effects: pl.DataFrame) -> Sentence:
    """Which axis matters most, on each kind of hardware or, where there are many, on how many of them."""
    ranks = importance(view, effects)
    if effects.is_empty():
        return answer("This sweep varies no axis, so there is no effect to estimate.")
    if ranks.is_empty():
        return answer("No axis's effect is estimable: too few configs gave a result, or axes always changed together.")
    grounds = [(each, rows) for each in view.hardware if (rows := ranks.filter(pl.col("hardware") == each)).height]
    if len(grounds) > FEW:
        return _leading_axes(grounds)
    return answer(
        *(part for hardware, rows in grounds for part in _axis_words(hardware, rows, inseparable(effects, hardware)))
    )


def _axis_words(hardware: str, rows: pl.DataFrame, without: Sequence[str]) -> list[Part]:
    """Sentence on the axes that matter; one is said to do so most only where every axis that varied can be compared."""
    first, *others = rows.iter_rows(named=True)
    if not first["matters"]:
        seen = ", ".join(_best_words(row) for row in (first, *others))
        words = "no axis is shown to matter: effects are within noise, or there are too few results"
        return [f"On {hardware}, {words} (seen: {seen}). "]
    shown = ", ".join(_best_words(row) for row in others if row["matters"])
    unshown = ", ".join(row["axis"] for row in others if not row["matters"])
    unknown = ["What ", code(", ".join(without)), " does is not known: it changed together with others. "]
    rest = "; ".join([*([shown] if shown else []), *([f"not shown to matter: {unshown}"] if unshown else [])])
    return [
        f"On {hardware}, ",
        code(first["axis"]),
        " matters: " if without else " matters most: ",
        code(first["best"]),
        " gives ",
        strong(percent(first["gain"])),
        " over ",
        code(first["worst"]),
        f", other axes being equal{f' ({rest})' if rest else ''}. ",
        *(unknown if without else []),
    ]


def _best_words(row: Mapping[str, Any]) -> str:
    """An axis's best alternative and what it gives over the worst."""
    return f"{row['axis']}={row['best']} {percent(row['gain'])}"


def _leading_axes(grounds: Sequence[tuple[str, pl.DataFrame]]) -> Sentence:
    leading = Counter(rows["axis"][0] for _, rows in grounds if rows["matters"][0])
    parts: list[Part] = [f"Of {len(grounds)} kinds of hardware, "]
    for axis, count in leading.most_common():
        parts += [code(axis), f" matters most on {count}, "]
    without = len(grounds) - leading.total()
    parts.append(
        f"and on {without} no axis is shown to matter: effects are within noise, or there are too few results."
        if without
        else "other axes being equal."
    )
    return answer(*parts)


def not_estimable(effects: pl.DataFrame) -> str:
    """The alternatives (`choice`) without an effect, of which `NOT_ESTIMABLE` are named; empty where each has one."""
    missing = effects.filter(pl.col("effect").is_null())["choice"].unique(maintain_order=True).to_list()
    more = f" and {len(missing) - NOT_ESTIMABLE} more" if len(missing) > NOT_ESTIMABLE else ""
    words = f" Not estimable, so left out of the means: {', '.join(missing[:NOT_ESTIMABLE])}{more}."
    return words if missing else ""


def pair_effects(view: SweepView) -> Table:
    """Table of what pairs of axes do beyond their parts, by their strongest cells; the rest is counted in its note."""
    every = beyond(view).with_columns(pl.col("effect", "low", "high") * 100)
    estimated = every.drop_nulls("effect")
    left = every.height - estimated.height if estimated.height else 0
    return table(
        estimated if estimated.height else every,
        [
            *([Column(key="hardware", title="Hardware")] if len(view.hardware) > 1 else []),
            Column(key="pair", title="Pair", kind="code"),
            Column(key="cell", title="Strongest cell"),
            *EFFECT_COLUMNS,
            Column(
                key="p_value", title="p", kind="number", digits=3, least=0.001, help="Chance of it, if without effect"
            ),
        ],
        name="pairs",
        title="What pairs of axes do beyond their parts",
        note=(
            "Effect: the pair's strongest cell over what its two values do by themselves. p: F test of the whole pair; "
            f"one in twenty is below {CHANCE} by chance."
            + ("" if (every["p_value"] < CHANCE).any() else " None is here: no pair is shown to act together.")
            + (f" {left} of {every.height} are not estimable and not shown." if left else "")
        ),
    )
