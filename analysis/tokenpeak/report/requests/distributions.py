"""Distributions of requests: quantiles of TTFT, TPOT and latency, TTFT by input length, and the queue over time.

All are of the objective's run. Where an archive has single requests they are counted; else quantiles are those that
each run recorded, and there is nothing by length.
"""

from collections.abc import Iterable

import polars as pl

from tokenpeak.report.blocks.block import Part, Sentence, answer, code, strong
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.load.interactivity import roles
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView

QUANTILES = tuple(sorted({*(step / 100 for step in range(1, 100, 2)), 0.5, 0.9}))
RECORDED = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares that a run's own percentiles stand for."""
WORDS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "latency_s": "Latency"}
"""What is drawn; answers of one token have no TPOT."""
SHOWN = 12
"""Configs of which requests are read: those that have a role, then the best."""
QUANTILED = 40
"""Configs whose recorded quantiles are drawn."""
GROUPS = 8
"""Groups of about as many requests into which input lengths are cut."""
BINS = 120
"""Moments at which a run's queue is drawn."""


def chosen(view: SweepView, ranked: Ranking, most: int) -> list[str]:
    """The labels of the configs with a role and of the best others, `most` in all."""
    ok = ranked.frame.filter(pl.col("state") == "ok")["label"].to_list()
    return [*dict.fromkeys([*(label for label in roles(view, ranked) if label in ok), *ok])][:most]


def requests_of(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """Measured requests of the objective's run: series (the label), the keys of WORDS, input_tokens, turn.

    Empty where the archive has none.
    """
    labels = chosen(view, ranked, SHOWN)
    runs = (
        view.objective_runs()
        .filter(pl.col("hardware") == ranked.hardware, pl.col("verdict") != "invalid", pl.col("label").is_in(labels))
        .select("trial_id", "run_index", "level_kind", series="label")
    )
    if runs.is_empty():
        return pl.DataFrame()
    start = pl.when(pl.col("level_kind") == "open").then(pl.col("due_s")).otherwise(pl.col("sent_s"))
    place = pl.col("series").replace_strict(labels, range(len(labels)), return_dtype=pl.Int64)
    return (
        view.requests.filter(
            pl.col("trial_id").is_in(runs["trial_id"].to_list()),
            pl.col("phase") == "measured",
            pl.col("error").is_null(),
        )
        .join(runs.lazy(), on=["trial_id", "run_index"])
        .select(
            "series",
            "input_tokens",
            "turn",
            ttft_s=pl.col("first_token_s") - start,
            tpot_s=pl.when(pl.col("output_tokens") > 1).then(
                (pl.col("last_token_s") - pl.col("first_token_s")) / (pl.col("output_tokens") - 1)
            ),
            latency_s=pl.col("last_token_s") - start,
        )
        .sort(place, maintain_order=True)
        .collect()
    )


def quantiles(view: SweepView, ranked: Ranking, requests: pl.DataFrame) -> pl.DataFrame:
    """A row per config, quantity and share: series, quantity (a key of WORDS), x (the share), value (ms), n (requests).

    A share x of the requests took at most `value`, by linear interpolation.
    """
    if requests.height:
        rows = [
            {"series": series, "quantity": key, "x": share, "value": at * 1000, "n": values.len()}
            for (series,), own in requests.group_by("series", maintain_order=True)
            for key in WORDS
            if (values := own[key].drop_nulls()).len()
            for share in QUANTILES
            if (at := values.quantile(share, "linear")) is not None
        ]
        return pl.DataFrame(rows, schema=_QUANTILES)
    return pl.DataFrame(list(_recorded(view, ranked)), schema=_QUANTILES)


_QUANTILES = pl.Schema(
    {"series": pl.String, "quantity": pl.String, "x": pl.Float64, "value": pl.Float64, "n": pl.Int64}
)


def _recorded(view: SweepView, ranked: Ranking) -> Iterable[dict[str, object]]:
    """The percentiles that runs recorded, as geometric means over launches."""
    runs = view.objective_runs().filter(pl.col("hardware") == ranked.hardware, pl.col("verdict") != "invalid")
    names = {(key, share): f"{key}_p{share * 100:.0f}" for key in WORDS for share in RECORDED}
    known = {place: name for place, name in names.items() if name in runs.columns}
    means = runs.group_by("label", maintain_order=True).agg(
        pl.col("requests_ok").sum().cast(pl.Int64), *(pl.col(name).log().mean().exp() for name in known.values())
    )
    rows = {row["label"]: row for row in means.iter_rows(named=True)}
    for label in chosen(view, ranked, QUANTILED):
        for (key, share), name in known.items():
            row = rows.get(label, {})
            # A publication may give a single percentile, and not of how many requests.
            if row.get("requests_ok") and row[name] is not None:
                yield {"series": label, "quantity": key, "x": share, "value": row[name] * 1000, "n": row["requests_ok"]}


def answer_tail(view: SweepView, ranked: Ranking, frame: pl.DataFrame) -> Sentence:
    """How long the slowest of a hundred requests waits for its first token: the recommended config and the baseline."""
    said = roles(view, ranked)
    tail = frame.filter(quantity="ttft_s", x=0.99) if frame.height else frame
    found = {row["series"]: row["value"] for row in tail.iter_rows(named=True)}
    known = [label for label in said if label in found]
    if not known:
        return answer(f"On {ranked.hardware}, no run that may be ranked recorded when its requests were answered.")
    parts: list[Part] = [
        f"{ranked.hardware}, {view.objective_place}: with ",
        code(known[0]),
        " 99% of requests got their first token within ",
        strong(f"{number(found[known[0]])} ms"),
    ]
    baseline = ranked.baseline_label
    if baseline in found and baseline != known[0]:
        parts.append(f", with {baseline} within {number(found[baseline])} ms")
    return answer(*parts, ".")


def by_group(requests: pl.DataFrame, column: str) -> pl.DataFrame:
    """TTFT by groups of a column: series, x (the group's median), value, low, high (median and quartiles, ms), n.

    Input lengths are cut into GROUPS of about as many requests, the same for all configs; turns are groups themselves.
    """
    group = pl.col(column) if column == "turn" else pl.col(column).qcut(GROUPS, allow_duplicates=True).to_physical()
    return (
        requests.drop_nulls(["ttft_s", column])
        .with_columns(group=group)
        .group_by("series", "group", maintain_order=True)
        .agg(
            x=pl.col(column).median(),
            value=pl.col("ttft_s").median() * 1000,
            low=pl.col("ttft_s").quantile(0.25, "linear") * 1000,
            high=pl.col("ttft_s").quantile(0.75, "linear") * 1000,
            n=pl.len(),
        )
        .sort("series", "x")
    )


def over_time(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """The first launch's objective run in steps: series, quantity (running, waiting), x (s), value (the largest)."""
    labels = chosen(view, ranked, SHOWN)
    runs = (
        view.objective_runs()
        .filter(
            pl.col("hardware") == ranked.hardware,
            pl.col("verdict") != "invalid",
            pl.col("label").is_in(labels),
            pl.col("measured_from_s").is_not_null(),
            pl.col("duration_s") > 0,
        )
        .sort("replicate", maintain_order=True)
        .unique("label", keep="first", maintain_order=True)
        .select("trial_id", "measured_from_s", "duration_s", series="label")
    )
    if runs.is_empty():
        return pl.DataFrame()
    step = float(runs["duration_s"].max() or 1.0) / BINS  # type: ignore[arg-type]
    wanted = {"requests_running": "running", "requests_waiting": "waiting"}
    x = ((pl.col("at_s") / step).floor() + 0.5) * step
    return (
        view.series.lazy()
        .filter(pl.col("quantity").is_in(list(wanted)), pl.col("trial_id").is_in(runs["trial_id"].to_list()))
        .join(runs.lazy(), on="trial_id")
        .with_columns(at_s=pl.col("t_s") - pl.col("measured_from_s"), quantity=pl.col("quantity").replace(wanted))
        .filter(pl.col("at_s") >= 0, pl.col("at_s") <= pl.col("duration_s"))
        .group_by("series", "quantity", x=x)
        .agg(value=pl.col("value").max())
        .collect()
        .drop_nulls()
        .sort("series", "quantity", "x")
    )
