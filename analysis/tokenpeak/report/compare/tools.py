"""One workload measured by several tools, side by side, with what makes their figures differ."""

import polars as pl

from tokenpeak.metrics import metric_of, titled
from tokenpeak.report.blocks.block import Block, Column, Sentence, answer, note, strong, table
from tokenpeak.report.blocks.digits import number, percent
from tokenpeak.report.view import SweepView

AXIS = "tool"
SHOWN = (
    "requests_ok",
    "requests_failed",
    "input_tokens",
    "output_tokens",
    "duration_s",
    "output_tok_per_s",
    "total_tok_per_s",
    "request_per_s",
    "request_output_tok_per_s_mean",
    "ttft_s_mean",
    "ttft_s_p50",
    "ttft_s_p99",
    "tpot_s_mean",
    "tpot_s_p50",
    "tpot_s_p99",
    "itl_s_mean",
    "itl_s_p99",
    "latency_s_mean",
    "latency_s_p50",
    "latency_s_p99",
)
MILLI = ("ttft_s", "tpot_s", "itl_s", "latency_s")


def compares(view: SweepView) -> bool:
    """The archive holds runs of several tools, so that no config of it is to be recommended."""
    return view.record.imported is not None and len(view.axes.get(AXIS, ())) > 1


def answer_tools(view: SweepView) -> Sentence:
    """How far the tools are apart in throughput at the load that they share."""
    runs = view.objective_runs().filter(pl.col("output_tok_per_s") > 0).sort("output_tok_per_s")
    if runs.height < 2:
        return answer("The tools share no load at which two of them measured anything.")
    low, high = runs.row(0, named=True), runs.row(-1, named=True)
    return answer(
        f"At {view.objective_place}, {high[f'axis_{AXIS}']} reports ",
        strong(f"{number(high['output_tok_per_s'])} tok/s"),
        f" and {low[f'axis_{AXIS}']} {number(low['output_tok_per_s'])}: ",
        strong(percent(high["output_tok_per_s"] / low["output_tok_per_s"] - 1)),
        " between tools on one engine.",
    )


def blocks(view: SweepView) -> list[Block]:
    """A column for each tool, a row for each figure; nothing for a sweep of one tool."""
    if not compares(view):
        return []
    rows = []
    for level in view.runs["level_label"].unique(maintain_order=True):
        runs = view.runs.filter(pl.col("level_label") == level)
        tools = [tool for tool in view.axes[AXIS] if (runs[f"axis_{AXIS}"] == tool).any()]
        if len(tools) < 2:
            continue
        for column in SHOWN:
            values = {tool: _mean(runs.filter(pl.col(f"axis_{AXIS}") == tool)[column]) for tool in tools}
            if any(value is not None for value in values.values()):
                rows.append(_row(level, column, values))
    if not rows:
        return []
    names = [tool for tool in view.axes[AXIS] if any(tool in row for row in rows)]
    frame = pl.DataFrame(
        [{key: row.get(key) for key in ("level", "metric", "unit", *names, "spread")} for row in rows],
        infer_schema_length=None,
    )
    found: list[Block] = [
        table(
            frame,
            [
                Column(key="level", title="Load"),
                Column(key="metric", title="Figure"),
                Column(key="unit", title="Unit"),
                *[Column(key=name, title=name) for name in names],
                Column(key="spread", title="Highest over lowest"),
            ],
            name="tools",
            title="One workload by several tools",
            note="A dash: the tool does not say. Runs of one tool at one load are averaged.",
        )
    ]
    found += _explained(view)
    imported = view.record.imported
    if imported is not None:
        found += [note(words) for words in imported.differences]
    found.append(
        note(
            "What definitions do not explain is the tool itself and the moment: each sent its own prompts, one after "
            "the other, from a client on the engine's machine, whose own work slows what it measures."
        )
    )
    return found


PARTS = ("output_tok_per_s", "request_per_s", "latency_s_mean", "ttft_s_mean", "tpot_s_mean", "output_tokens",
         "requests_ok")  # fmt: skip


def _explained(view: SweepView) -> list[Block]:
    """Each tool's throughput at the shared load as requests in flight × tokens ÷ latency, against the highest."""
    runs = view.objective_runs().filter(pl.all_horizontal(pl.col(name) > 0 for name in PARTS))
    means = runs.group_by(f"axis_{AXIS}", maintain_order=True).agg(pl.col(name).mean() for name in PARTS)
    if means.height < 2:
        return []
    frame = means.with_columns(
        tool=pl.col(f"axis_{AXIS}"),
        in_flight=pl.col("request_per_s") * pl.col("latency_s_mean"),
        tokens=pl.col("output_tokens") / pl.col("requests_ok"),
        latency_ms=pl.col("latency_s_mean") * 1000,
        ttft_ms=pl.col("ttft_s_mean") * 1000,
        rest_ms=(pl.col("latency_s_mean") - pl.col("ttft_s_mean")) * 1000,
        tpot_ms=pl.col("tpot_s_mean") * 1000,
        whole_ms=pl.col("latency_s_mean") * 1000 / (pl.col("output_tokens") / pl.col("requests_ok")),
    ).sort("output_tok_per_s", descending=True)
    best = frame.row(0, named=True)
    against = [_against(row, best) for row in frame.iter_rows(named=True)]
    return [
        table(
            frame.with_columns(pl.Series("against", against)),
            [
                Column(key="tool", title="Tool"),
                Column(key="output_tok_per_s", title="Output throughput", unit="tok/s", kind="number"),
                Column(key="against", title=f"Against {best['tool']}"),
                Column(key="in_flight", title="Requests in flight", kind="number", digits=2),
                Column(key="tokens", title="Tokens a request", kind="number"),
                Column(key="latency_ms", title="Latency", unit="ms", kind="number", digits=1),
                Column(key="ttft_ms", title="Of it TTFT", unit="ms", kind="number", digits=1),
                Column(key="rest_ms", title="Of it decoding", unit="ms", kind="number", digits=1),
                Column(key="tpot_ms", title="TPOT", unit="ms", kind="number", digits=2),
                Column(key="whole_ms", title="Latency ÷ tokens", unit="ms", kind="number", digits=2),
            ],
            name="tools-explained",
            title="What makes their throughput differ",
            note=(
                "Means. Throughput is requests in flight × tokens a request ÷ latency; in flight are requests a second "
                "× latency. What lacks to the load's own number is time in which a client asked nothing: between an "
                "answer and its next request, and at the ends of a run. Latency ÷ tokens has TTFT in it, unlike TPOT."
            ),
        )
    ]


def _against(row: dict[str, float], best: dict[str, float]) -> str:
    """By which factors of its throughput a tool is apart from the best, those under a percent left out."""
    words = (("in_flight", "in flight"), ("tokens", "tokens"), ("latency_ms", "latency"))
    shares = [(name, row[key] / best[key] - 1) for key, name in words]
    return ", ".join(f"{name} {percent(share)}" for name, share in shares if abs(share) >= 0.01) or "–"


def _mean(values: pl.Series) -> float | None:
    known = values.drop_nulls()
    return float(known.cast(pl.Float64).mean()) if known.len() else None  # type: ignore[arg-type]


def _row(level: str, column: str, values: dict[str, float | None]) -> dict[str, str]:
    found = metric_of(column)
    scale, unit = 1.0, "s" if column == "duration_s" else ""
    title = column.replace("_", " ").removesuffix(" s").capitalize()
    if found:
        metric, statistic = found
        title = titled(metric, statistic)
        scale, unit = (1000.0, "ms") if metric.name in MILLI else (1.0, metric.unit)
    known = [value for value in values.values() if value]
    spread = percent(max(known) / min(known) - 1) if len(known) > 1 else "–"
    shown = {tool: number(value * scale) if value is not None else "–" for tool, value in values.items()}
    return {"level": level, "metric": title, "unit": unit, "spread": spread, **shown}
