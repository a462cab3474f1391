"""Distributions of requests: quantiles of TTFT, TPOT and latency, TTFT by input length, and the queue over time.

All are of the objective's run. Quantiles are geometric means over launches of each launch's, as in the ranking. Where
an archive has no single requests they are those that each run recorded, and there is nothing by length.
"""

from collections.abc import Iterable, Mapping, Sequence

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.ranking.intervals import share as share_of
from tokenpeak.report.blocks import charts
from tokenpeak.report.blocks.block import Column, Figure, Part, Sentence, Table, answer, code, strong, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.load.curve_charts import STEEP
from tokenpeak.report.load.interactivity import roles
from tokenpeak.report.ranking.classes import by_class
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
_QUANTILES = pl.Schema(
    {"series": pl.String, "quantity": pl.String, "x": pl.Float64, "value": pl.Float64, "n": pl.Int64}
)
WIDTH, HEIGHT = 300, 210
TABLED = (0.5, 0.95, 0.99)
"""Quantiles of the table."""


def chosen(view: SweepView, ranked: Ranking, most: int) -> list[str]:
    """The labels of the configs with a role and of the best others, `most` in all."""
    ok = ranked.frame.filter(pl.col("state") == "ok")["label"].to_list()
    return [*dict.fromkeys([*(label for label in roles(view, ranked) if label in ok), *ok])][:most]


def requests_of(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """Measured requests of the objective's run: series (the label), trial_id, keys of WORDS, tokens, turn.

    Configs of one class are one, as in the ranking. Empty where the archive has none.
    """
    labels = chosen(view, ranked, SHOWN)
    runs = (
        _ranked_runs(view, ranked)
        .filter(pl.col("label").is_in(labels))
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
            "trial_id",
            "input_tokens",
            "output_tokens",
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

    A share x of a launch's requests took at most so long, by linear interpolation, or as its run recorded; `value` is
    the geometric mean of that over launches.
    """
    if requests.height:
        runs = _ranked_runs(view, ranked)
        parts = []
        for key in WORDS:
            own = requests.drop_nulls(key)
            known = {at: name for at in RECORDED if (name := _name(key, at)) in runs.columns}
            recorded = runs.select("trial_id", *(pl.col(name).alias(f"run_{at}") for at, name in known.items()))
            parts.append(
                own.group_by("series", "trial_id", maintain_order=True)
                .agg(pl.len().alias("n"), *(pl.col(key).quantile(at, "linear").alias(str(at)) for at in QUANTILES))
                .join(recorded, on="trial_id", how="left", maintain_order="left")
                .with_columns(pl.coalesce(f"run_{at}", str(at)).alias(str(at)) for at in known if at in QUANTILES)
                .group_by("series", maintain_order=True)
                .agg(pl.col("n").sum().cast(pl.Int64), pl.col(map(str, QUANTILES)).log().mean().exp() * 1000)
                .unpivot(index=["series", "n"], variable_name="x")
                .select("series", pl.lit(key).alias("quantity"), pl.col("x").cast(pl.Float64), "value", "n")
            )
        place = pl.col("series").cast(pl.Enum(requests["series"].unique(maintain_order=True)))
        return pl.concat(parts).sort(place, maintain_order=True)
    return pl.DataFrame(list(_recorded(view, ranked)), schema=_QUANTILES)


def _ranked_runs(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """The objective's runs that may be ranked, with the labels of the ranking's rows."""
    runs = view.objective_runs().filter(pl.col("hardware") == ranked.hardware, pl.col("verdict") != "invalid")
    return by_class(view, runs)


def _name(key: str, share: float) -> str:
    """The column of runs that has this share's quantile."""
    return f"{key}_p{share * 100:.0f}"


def _recorded(view: SweepView, ranked: Ranking) -> Iterable[dict[str, object]]:
    """The percentiles that runs recorded, as geometric means over launches."""
    runs = _ranked_runs(view, ranked)
    names = {(key, share): _name(key, share) for key in WORDS for share in RECORDED}
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
    """How long a launch's slowest of a hundred requests waits for its first token, or a pooling model's answer."""
    said = roles(view, ranked)
    tail = frame.filter(quantity="latency_s" if view.spec.pools else "ttft_s", x=0.99) if frame.height else frame
    found = {row["series"]: row["value"] for row in tail.iter_rows(named=True)}
    known = [label for label in said if label in found]
    if not known:
        return answer(f"On {ranked.hardware}, no run that may be ranked recorded when its requests were answered.")
    parts: list[Part] = [
        f"{ranked.hardware}, {view.objective_place}: with ",
        code(known[0]),
        f" 99% of requests got their {'answer' if view.spec.pools else 'first token'} within ",
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
    by_length = pl.col(column).bin_quantiles(GROUPS, labels=False, right_closed=True)
    group = pl.col(column) if column == "turn" else by_length
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
    """The first launch's objective run in steps: series, quantity (running, waiting), x (s), value (the largest).

    Empty where the engine was asked at one moment only: that is no course.
    """
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
    found = (
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
    return found if found["x"].n_unique() > 1 else found.clear()


def _lines(
    frames: Mapping[str, pl.DataFrame], names: Sequence[str], roles: Mapping[str, str], x: alt.X, *, step: bool = False
) -> alt.TopLevelMixin:
    """A panel for each frame (series, x, value, n if known), titled by its key: picked configs as lines."""
    key = charts.legend(roles)
    panels = []
    for words, frame in frames.items():
        short = frame.with_columns(pl.col("x", "value").round_sig_figs(5))
        values = short["value"].to_list()
        log = not step and min(values) > 0 and max(values) > STEEP * min(values)
        scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True, nice=True)
        y = charts.metric_axis(words, scale)
        _, chosen = charts.split(alt.Chart(short))
        base = chosen.encode(x=x, y=y, color=charts.colour(key))
        counted = {"requests": "n:Q"} if "n" in short.columns else {}
        tip = charts.tooltips({"config": "series:N", "x": "x:Q", words: "value:Q", **counted})
        line = base.mark_line(interpolate="step" if step else "linear", strokeWidth=1.8)
        dot = base.mark_point(filled=True, size=26, opacity=0 if step else 1)
        if step:
            layers = [line.encode(strokeDash=charts.dash(key)), dot.encode(tooltip=tip)]
        else:
            layers = [line, dot.encode(shape=charts.shape(key), tooltip=tip)]
        panels.append(alt.layer(*layers, width=WIDTH, height=HEIGHT))
    return alt.concat(*panels, columns=3, spacing=28, params=charts.parameters(names))


def quantile_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """Time against the share of requests that took no longer: a panel each for TTFT, TPOT and latency."""
    known = {key: own for key in WORDS if (own := frame.filter(quantity=key)).height}
    axis = alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 0.9, 0.99], labelOverlap="greedy")
    x = alt.X("x:Q", title="share of requests that took no longer", scale=alt.Scale(zero=False, nice=False), axis=axis)
    panels = {f"{WORDS[key]} (ms)": own.drop("quantity") for key, own in known.items()}
    counts = sorted({*frame["n"].to_list()})
    n = " to ".join(number(each) for each in dict.fromkeys([counts[0], counts[-1]]))
    whole = frame["x"].n_unique() > len(RECORDED)
    return figure(
        _lines(panels, names, roles, x),
        frame.with_columns(pl.col("quantity").replace(WORDS), x=pl.col("x") * 100),
        {
            "series": "`Config`",
            "quantity": "Time",
            "x": Column(key="x", title="Share of requests", unit="%", kind="number", digits=0),
            "value": "At most (ms)",
            "n": "Requests",
        },
        name=f"quantiles-{slug(hardware)}",
        title=f"How long requests took{view.where(hardware)}",
        caption=f"At {view.objective_place}; {n} requests a config. Quantiles of launches, as geometric means over "
        "them. A flat line: requests took about the same time. A steep end: "
        f"a few took far longer.{'' if whole else ' Quantiles as recorded: the archive has no single requests.'}",
        scope=slug(hardware),
    )


def quantile_table(view: SweepView, hardware: str, frame: pl.DataFrame) -> Table:
    """A row per config with the quantiles of TABLED of each time; a row picks its config."""
    limited = {share_of(percentile) for _, percentile, _ in view.spec.slo.limits()}
    tabled = sorted({*TABLED, *limited})
    short = frame.filter(pl.col("x").is_in(tabled)).with_columns(
        column=pl.format("{}_{}", "quantity", (pl.col("x") * 100).round().cast(pl.Int64))
    )
    wide = short.pivot("column", index="series", values="value", maintain_order=True)
    counts = frame.group_by("series").agg(pl.col("n").max())
    return table(
        wide.join(counts, on="series", how="left", maintain_order="left"),
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            *(
                Column(key=f"{key}_{share * 100:.0f}", title=f"{words} p{share * 100:.0f}", unit="ms", kind="number")
                for key, words in WORDS.items()
                for share in tabled
            ),
            Column(key="n", title="Requests", kind="number"),
        ],
        name=f"quantiles-table-{slug(hardware)}",
        title=f"Quantiles of requests{view.where(hardware)}",
        scope=slug(hardware),
    )


def turns_table(view: SweepView, hardware: str, requests: pl.DataFrame) -> Table | None:
    """A row per config and turn of its chats: tokens, TTFT and latency; None where no chat has several turns."""
    if requests.is_empty() or requests["turn"].n_unique() < 2:
        return None
    names = requests["series"].unique(maintain_order=True).to_list()
    order = pl.col("series").replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    found = (
        requests.group_by("series", "turn", maintain_order=True)
        .agg(
            pl.col("input_tokens", "output_tokens").mean(),
            (pl.col("ttft_s").median() * 1000).alias("ttft_50"),
            *((pl.col(key).quantile(0.95, "linear") * 1000).alias(f"{key[:-2]}_95") for key in ("ttft_s", "latency_s")),
            pl.len().cast(pl.Int64).alias("n"),
        )
        .with_columns(pl.col("turn") + 1)
        .sort(order, "turn")
    )
    return table(
        found,
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="turn", title="Turn", kind="number"),
            Column(key="input_tokens", title="Prompt, mean", unit="tokens", kind="number"),
            Column(key="output_tokens", title="Answer, mean", unit="tokens", kind="number"),
            Column(key="ttft_50", title="TTFT p50", unit="ms", kind="number"),
            Column(key="ttft_95", title="TTFT p95", unit="ms", kind="number"),
            Column(key="latency_95", title="Latency p95", unit="ms", kind="number"),
            Column(key="n", title="Requests", kind="number"),
        ],
        name=f"turns-{slug(hardware)}",
        title=f"Turns of chats{view.where(hardware)}",
        note="Over the requests of all launches.",
        scope=slug(hardware),
    )


def group_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, words: str, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """TTFT against the input length or the turn: medians of groups with their quartiles."""
    key = charts.legend(roles, columns=2)
    _, chosen = charts.split(alt.Chart(frame.with_columns(pl.col("value", "low", "high").round_sig_figs(5))))
    x = alt.X("x:Q", title=words, scale=alt.Scale(zero=False, padding=10))
    base = chosen.encode(x=x, color=charts.colour(key))
    bar = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q", title="TTFT (ms)"), y2="high:Q")
    line = base.mark_line(**charts.joined(frame["x"].n_unique())).encode(y="value:Q")
    tip = charts.tooltips({"config": "series:N", words: "x:Q", "TTFT p50 (ms)": "value:Q", "requests": "n:Q"})
    dot = base.mark_point(filled=True, size=45, opacity=1).encode(y="value:Q", shape=charts.shape(key), tooltip=tip)
    drawn = alt.layer(bar, line, dot, params=charts.parameters(names), width=460, height=230)
    return figure(
        drawn,
        frame,
        {
            "series": "`Config`",
            "x": words[0].upper() + words[1:],
            "value": "TTFT p50 (ms)",
            "low": "TTFT p25 (ms)",
            "high": "TTFT p75 (ms)",
            "n": "Requests",
        },
        name=f"ttft-by-{slug(words.partition(' (')[0])}-{slug(hardware)}",
        title=f"TTFT by {words.partition(' (')[0]}{view.where(hardware)}",
        caption="Median of each group of requests, those of all launches pooled; bars from the 25th to the 75th "
        f"percentile. {number(frame.height)} points of {number(int(frame['n'].sum()))} requests.",
        span="half",
        scope=slug(hardware),
    )


def time_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """The engine's queue over the time of a run."""
    words = {"running": "requests running", "waiting": "requests waiting"}
    panels = {words[key]: own.drop("quantity") for key in words if (own := frame.filter(quantity=key)).height}
    x = alt.X("x:Q", title="seconds after the first measured request", scale=alt.Scale(zero=False, nice=False))
    return figure(
        _lines(panels, names, roles, x, step=True),
        frame.with_columns(pl.col("quantity").replace(words)),
        {"series": "`Config`", "quantity": "Quantity", "x": "Time (s)", "value": "Value"},
        name=f"queue-{slug(hardware)}",
        title=f"Queue over a run{view.where(hardware)}",
        caption=f"Each config's first launch at {view.objective_place}. A queue that grows to the end: the load is "
        "more than the engine serves.",
        scope=slug(hardware),
    )
