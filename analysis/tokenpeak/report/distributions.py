"""How requests differ within runs: TTFT and TPOT distributions, TTFT against input length, turns of conversations."""

import altair as alt
import polars as pl

from tokenpeak.report import charts, theme
from tokenpeak.report.blocks import Column, Figure, Sentence, answer, code, number, strong, table
from tokenpeak.report.figures import slug, speeds
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView

QUANTILES = tuple(sorted({*(step / 100 for step in range(1, 100, 2)), 0.5, 0.9}))
TABLED = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares that a run's own percentiles stand for."""
WORDS = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
"""What is drawn; answers of one token have no TPOT."""
SHOWN = 4
"""Configs whose distributions are drawn: the winner and those that follow it."""


def answer_tradeoff(view: SweepView) -> Sentence:
    """How fast single users are served where the node gives most, and the fastest that one is ever served."""
    parts = []
    for hardware in view.hardware:
        own = speeds(view, hardware)
        if own.is_empty():
            continue
        several = own["workload_name"].n_unique() > 1
        place = pl.concat_str("workload_name", pl.lit(", "), "level_label") if several else pl.col("level_label")
        own = own.with_columns(place=place)
        most = own.sort("whole", descending=True).row(0, named=True)
        fastest = own.sort("user", descending=True).row(0, named=True)
        parts += [
            f"On {hardware}, ",
            code(most["label"]),
            f" gives most at {most['place']}: ",
            strong(f"{number(most['whole'])} tok/s"),
            f" in all, {number(most['user'])} tok/s to the median user",
        ]
        if (most["label"], most["place"]) == (fastest["label"], fastest["place"]):
            parts.append(", and none was served faster. ")
        else:
            parts += [
                "; the fastest a median user was served is ",
                strong(f"{number(fastest['user'])} tok/s"),
                " (",
                code(fastest["label"]),
                f" at {fastest['place']}). ",
            ]
    if not parts:
        return answer(
            "No run that may be ranked has both a throughput and the speed of its requests, so there is no trade-off "
            "to draw. What is known of each run is below."
        )
    return answer(*parts)


def _objective_requests(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """Measured requests of the objective's run of the best configs: label, ttft_s, tpot_s, input_tokens, turn.

    They are in the order of the ranking, then of launches and time.
    """
    best = ranked.frame.filter(pl.col("state") == "ok").head(SHOWN).select("config_id", order="rank")
    chosen = (
        view.objective_runs()
        .filter(pl.col("hardware") == ranked.hardware, pl.col("verdict") != "invalid")
        .join(best, on="config_id")
        .select("trial_id", "run_index", "label", "level_kind", "order")
    )
    if chosen.is_empty():
        return pl.DataFrame()
    start = pl.when(pl.col("level_kind") == "open").then(pl.col("due_s")).otherwise(pl.col("sent_s"))
    return (
        view.requests.filter(
            pl.col("trial_id").is_in(chosen["trial_id"].to_list()),
            pl.col("phase") == "measured",
            pl.col("error").is_null(),
        )
        .select(
            "trial_id",
            "run_index",
            "due_s",
            "sent_s",
            "first_token_s",
            "last_token_s",
            "output_tokens",
            "input_tokens",
            "turn",
        )
        .join(chosen.lazy(), on=["trial_id", "run_index"])
        .with_columns(
            ttft_s=pl.col("first_token_s") - start,
            tpot_s=pl.when(pl.col("output_tokens") > 1).then(
                (pl.col("last_token_s") - pl.col("first_token_s")) / (pl.col("output_tokens") - 1)
            ),
        )
        .sort("order", "trial_id", "run_index", "sent_s")
        .collect()
    )


def figures(view: SweepView, ranked: Ranking) -> list[Figure]:
    """Distributions of TTFT and TPOT of the best configs, and TTFT by input length or turn where these vary."""
    requests = _objective_requests(view, ranked)
    if requests.is_empty():
        return []
    told = [(column, word) for column, word in WORDS.items() if requests[column].is_not_null().any()]
    found = [_shares(view, ranked, requests, column, word) for column, word in told]
    if requests["input_tokens"].n_unique() > 4:
        found.append(_by(view, ranked, requests, "input_tokens", "input length", "tokens"))
    if requests["turn"].n_unique() > 1:
        found.append(_by(view, ranked, requests, "turn", "turn of the conversation", ""))
    return found


def _shares(view: SweepView, ranked: Ranking, requests: pl.DataFrame, column: str, word: str) -> Figure:
    rows = []
    for (label,), group in requests.group_by("label", maintain_order=True):
        values = group[column].drop_nulls()
        if values.len():
            rows += [
                {
                    "label": label,
                    "share": share,
                    "value": float(values.quantile(share, "linear") or 0.0) * 1000,
                    "n": values.len(),
                }
                for share in QUANTILES
            ]
    frame = pl.DataFrame(rows)
    names = frame["label"].unique(maintain_order=True).to_list()
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=names, range=list(theme.SERIES[: len(names)])),
        legend=alt.Legend(title=None, columns=2),
    )
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=names, range=[[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]][: len(names)]),
        legend=alt.Legend(title=None, columns=2),
    )
    chart = (
        alt.Chart(frame)
        .mark_line()
        .encode(
            x=alt.X(
                "value:Q",
                title=f"{word} (ms)",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(tickCount=6, format="~g"),
            ),
            y=alt.Y(
                "share:Q",
                title="share of requests as fast or faster",
                axis=alt.Axis(format=".0%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=colour,
            strokeDash=dash,
            tooltip=[
                alt.Tooltip("label:N"),
                alt.Tooltip("share:Q", format=".0%"),
                alt.Tooltip("value:Q", format=",.4~g", title="ms"),
            ],
        )
        .properties(width=330, height=220)
    )
    counts = frame.group_by("label", maintain_order=True).agg(pl.col("n").first())["n"].to_list()
    return Figure(
        name=f"shares-{slug(word)}-{slug(ranked.hardware)}",
        title=f"{word} over requests on {ranked.hardware}",
        caption=(
            f"The {f'{len(names)} best configs' if len(names) > 1 else 'best config'} at {view.objective_place}; "
            f"n={number(min(counts))}{f' to {number(max(counts))}' if max(counts) > min(counts) else ''} "
            f"measured requests{' each' if len(names) > 1 else ''}. A steep line: requests alike."
        ),
        spec=charts.spec_of(chart),
        data=table(
            frame.filter(pl.col("share").is_in(TABLED)).with_columns(pl.col("share") * 100),
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="share", title="Share of requests", unit="%", kind="number", digits=0),
                Column(key="value", title=word, unit="ms", kind="number"),
                Column(key="n", title="Requests", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: {word} on {ranked.hardware}",
        ),
    )


def _by(view: SweepView, ranked: Ranking, requests: pl.DataFrame, column: str, words: str, unit: str) -> Figure:
    group = pl.col(column) if column == "turn" else pl.col(column).qcut(8, allow_duplicates=True).to_physical()
    frame = (
        requests.filter(pl.col("ttft_s").is_not_null(), pl.col(column).is_not_null())
        .with_columns(group=group)
        .group_by("label", "group", maintain_order=True)
        .agg(
            x=pl.col(column).median(),
            value=pl.col("ttft_s").median() * 1000,
            low=pl.col("ttft_s").quantile(0.25, "linear") * 1000,
            high=pl.col("ttft_s").quantile(0.75, "linear") * 1000,
            n=pl.len(),
        )
        .sort("label", "x")
    )
    names = frame["label"].unique(maintain_order=True).to_list()
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=names, range=list(theme.SERIES[: len(names)])),
        legend=alt.Legend(title=None, columns=2),
    )
    base = alt.Chart(frame).encode(x=alt.X("x:Q", title=f"{words} ({unit})" if unit else words), color=colour)
    chart = alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q", title="TTFT (ms)"), y2=alt.Y2("high:Q")),
        base.mark_line(point=True).encode(
            y=alt.Y("value:Q"),
            tooltip=[
                alt.Tooltip("label:N"),
                alt.Tooltip("x:Q"),
                alt.Tooltip("value:Q", format=",.4~g"),
                alt.Tooltip("n:Q"),
            ],
        ),
    ).properties(width=330, height=220)
    return Figure(
        name=f"ttft-by-{slug(words)}-{slug(ranked.hardware)}",
        title=f"TTFT by {words} on {ranked.hardware}",
        caption=(
            "Median of the requests in each group, bars from the 25th to the 75th percentile; "
            f"{view.objective_place}, n={number(int(frame['n'].sum()))} requests."
        ),
        spec=charts.spec_of(chart),
        data=table(
            frame,
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="x", title=words.capitalize(), unit=unit, kind="number"),
                Column(key="value", title="TTFT p50", unit="ms", kind="number"),
                Column(key="low", title="TTFT p25", unit="ms", kind="number"),
                Column(key="high", title="TTFT p75", unit="ms", kind="number"),
                Column(key="n", title="Requests", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: TTFT by {words}",
        ),
    )
