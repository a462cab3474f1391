"""Presets side by side for each model and context: what is highest, and what failed.

A preset of a publication is one of its nodes; of a sweep of one's own it is a kind of hardware with an arrangement of
its GPUs, such as TP2.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import altair as alt
import polars as pl

from tokenpeak.ranking.ties import winner_group
from tokenpeak.report.blocks import theme
from tokenpeak.report.blocks.block import Column, Figure, Part, Sentence, Table, answer, strong, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import counted
from tokenpeak.report.blocks.metric_columns import trial_href
from tokenpeak.report.view import SweepView
from tokenpeak.vllm.flags import size

PARALLELISM = "parallelism"
PANEL, ROOM = 230, 1300
"""Pixels: a panel of bars, and the panels of a row with their labels."""
MODEL, CONTEXT = "model", "max_model_len"
OF_REQUESTS = {"request_output_tok_per_s_mean": "Output of a request", "request_input_tok_per_s_mean": "Its prompt"}
PARALLEL = {
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "enable_expert_parallel": "EP",
}
"""Flags of parallelism and how an arrangement abbreviates them."""
LEADERS = {
    "model": pl.String,
    "context": pl.Int64,
    "output_node": pl.String,
    "output": pl.Float64,
    "tied": pl.String,
    "prompt_node": pl.String,
    "prompt": pl.Float64,
    "failed": pl.String,
    "presets": pl.Int64,
}
"""Columns of `leaders` where there are none."""


def has_presets(view: SweepView) -> bool:
    """The sweep compares presets over models and contexts: several models, on several nodes or arrangements."""
    if not {MODEL, CONTEXT} <= view.axes.keys() or len(view.axes[MODEL]) < 2:
        return False
    return len(view.record.nodes) > 1 or bool(parallel_axes(view))


def contexts(view: SweepView) -> dict[str, int] | dict[str, str]:
    """The contexts by the name of their alternative: tokens, or the names where one sets none."""
    flags = {each.name: each.flags.get(CONTEXT) for each in view.spec.axes.get(CONTEXT, ())}
    tokens = {name: size(str(flags.get(name) or name)) for name in view.axes[CONTEXT]}
    known = {name: each for name, each in tokens.items() if each is not None}
    return known if len(known) == len(tokens) else {name: name for name in tokens}


def _context_column(frame: pl.DataFrame) -> Column:
    is_number = frame["context"].dtype.is_integer()
    return Column(key="context", title="Context", unit="tokens", kind="number" if is_number else "code")


def parallel_axes(view: SweepView) -> list[str]:
    """The axes of several alternatives that are flags of parallelism, or whose alternatives set them."""
    return [
        axis
        for axis, alternatives in view.spec.axes.items()
        if len(view.axes.get(axis, ())) > 1
        and (axis in PARALLEL or any(PARALLEL.keys() & each.flags.keys() for each in alternatives))
    ]


def arrangement(choices: Sequence[tuple[str, str | None]]) -> str:
    """An arrangement in a word, such as `TP2 × PP4`; what is one or off is left out."""
    parts = [
        PARALLEL[axis] if value == "true" else f"{PARALLEL[axis]}{value}"
        for axis, value in choices
        if value not in (None, "1", "false")
    ]
    return " × ".join(parts) or "one GPU"


def arrangements_of(view: SweepView) -> dict[str, str]:
    """The arrangement of each config that the plans have, by its id."""
    configs = {each.config.config_id: each.config for plan in view.record.plans for each in plan.feasible}
    return {
        config_id: arrangement(
            [(flag, str(value).lower()) for flag in PARALLEL if (value := config.flags.get(flag)) is not None]
        )
        for config_id, config in configs.items()
    }


def results(view: SweepView) -> pl.DataFrame:
    """The runs under the objective's load, with the `preset` of each."""
    runs = view.objective_runs()
    if view.record.imported is not None:
        return runs.with_columns(preset=pl.col("node"))
    arranged = pl.col("config_id").replace_strict(arrangements_of(view), default="one GPU", return_dtype=pl.String)
    return runs.filter(pl.col("verdict") != "invalid").with_columns(
        preset=pl.format("{}, {}", "hardware", arranged) if parallel_axes(view) else pl.col("hardware")
    )


def rows(view: SweepView, model: str, context: str) -> pl.DataFrame:
    """Each config of each preset under the objective's load, by means over its launches, highest output first.

    Of a publication it is the first launch, and its pipeline-parallel arms are left out.
    """
    runs = results(view).filter(pl.col(f"axis_{MODEL}") == model, pl.col(f"axis_{CONTEXT}") == context)
    if view.record.imported is not None:
        runs = runs.filter(pl.col("replicate") == 0)
        if PARALLELISM in view.axes:
            runs = runs.filter(pl.col(f"axis_{PARALLELISM}") != "pipeline")
    else:
        means = pl.col("output_tok_per_s", "input_tok_per_s").log().mean().exp().over("preset", "config_id")
        runs = runs.with_columns(means).sort("replicate").unique(["preset", "config_id"], keep="first")
    return runs.sort("output_tok_per_s", descending=True, nulls_last=True, maintain_order=True)


def leaders(view: SweepView) -> list[dict[str, object]]:
    """Of each model and context that was measured: the presets of the highest throughputs, and what failed.

    `tied` has the presets that launches do not separate from that of the highest output, or that are as good.
    """
    found = []
    clean = results(view).filter(pl.col("output_tok_per_s") > 0, pl.col("requests_failed").fill_null(0) == 0)
    measured = clean.group_by("preset", "config_id", maintain_order=True)
    launches = {_key(*key): own["output_tok_per_s"].to_list() for key, own in measured}
    for context, model in product(view.axes[CONTEXT], view.axes[MODEL]):
        tried = rows(view, model, context)
        if tried.is_empty():
            continue
        output = tried.row(0, named=True)
        own = {_key(*each): each[0] for each in tried.select("preset", "config_id").iter_rows()}
        compared = launches
        if output["output_tok_per_s"]:
            # What others tie with is the highest, though some of its requests failed.
            compared = {_key(output["preset"], output["config_id"]): [output["output_tok_per_s"]], **launches}
        standings = winner_group(compared, among=own.keys(), margin=view.spec.search.margin).standings
        tied = dict.fromkeys(own[each.config] for each in standings if each.may_be_recommended)
        prompt = tried.sort("input_tok_per_s", descending=True, nulls_last=True, maintain_order=True).row(0, named=True)
        failed = tried.filter(pl.col("requests_failed") > 0).sort("requests_failed", descending=True)
        counts = [f"{node} ({count})" for node, count in failed.select("preset", "requests_failed").iter_rows()]
        found.append(
            {
                "model": model,
                "context": contexts(view)[context],
                "output_node": output["preset"],
                "output": output["output_tok_per_s"],
                "tied": "; ".join(preset for preset in tied if preset != output["preset"]) or None,
                "prompt_node": prompt["preset"],
                "prompt": prompt["input_tok_per_s"],
                "failed": ", ".join(counts) or None,
                "presets": tried["preset"].n_unique(),
            }
        )
    return found


def _launches(view: SweepView) -> str:
    if view.record.imported is None:
        return "Means over the launches of each config"
    return view.lone_words("one launch each").capitalize()


def _key(preset: object, config_id: object) -> str:
    return f"{preset} {config_id}"


def answer_presets(view: SweepView) -> Sentence:
    """Which preset leads alone how often, over all pairs of model and context, and how often presets tie."""
    found = [each for each in leaders(view) if each["presets"] != 1 and each["output"]]
    if not found:
        return answer("No model and context has a result on more than one preset, so that none can be compared.")
    counts = Counter(each["output_node"] for each in found if each["tied"] is None).most_common()
    ties = sum(each["tied"] is not None for each in found)
    alone = ", ".join(f"{node} in {count}" for node, count in counts)
    of = "pairs of model and context"
    tied = f"In {ties} of {len(found)} {of}, presets tie for the highest output throughput"
    parts: list[Part] = [tied] if ties else [f"Of {len(found)} {of}, the highest output throughput is that of "]
    if counts:
        parts += [*(["; in the others it is that of "] if ties else []), strong(alone)]
    lone = sum(each["presets"] == 1 and bool(each["output"]) for each in leaders(view))
    rest = f" {counted(lone, 'more was', 'more were')} measured on one preset alone." if lone else ""
    return answer(
        "No single config is recommended, because the models differ: each is compared over presets of hardware. ",
        *parts,
        f".{rest}",
    )


def highest(view: SweepView) -> Table:
    """The preset with the highest throughputs for each model and context, and where requests failed."""
    found = leaders(view)
    frame = pl.DataFrame(found, schema=None if found else LEADERS, infer_schema_length=None)
    return table(
        frame,
        [
            Column(key="model", title="Model", kind="code"),
            _context_column(frame),
            Column(key="output_node", title="Highest output", kind="code"),
            Column(key="output", title="Output", unit="tok/s", kind="number", digits=2),
            *([Column(key="tied", title="Tied with")] if frame["tied"].is_not_null().any() else []),
            Column(key="prompt_node", title="Highest prompt", kind="code"),
            Column(key="prompt", title="Prompt", unit="tok/s", kind="number", digits=2),
            Column(key="failed", title="Requests failed on"),
        ],
        name="highest",
        title="The highest throughputs of each model and context",
        note=f"{_launches(view)}, over the presets on which it was measured. A preset is tied where launches do not "
        f"separate it from the highest, or where it is within {view.spec.search.margin:.0%} of it.",
    )


def every(view: SweepView) -> Table:
    """All results, those of one model and context together with the highest output first."""
    order, places = ({name: index for index, name in enumerate(view.axes[axis])} for axis in (MODEL, CONTEXT))
    frame = (
        results(view)
        .filter(pl.col(f"axis_{MODEL}").is_not_null())
        .with_columns(
            context=pl.col(f"axis_{CONTEXT}").replace_strict(contexts(view)),
            place=pl.col(f"axis_{CONTEXT}").replace_strict(places, return_dtype=pl.Int64),
            href=trial_href(pl.col("trial_id")),
            order=pl.col(f"axis_{MODEL}").replace_strict(order, return_dtype=pl.Int64),
        )
        .sort("place", "order", "output_tok_per_s", descending=[False, False, True], nulls_last=True)
    )
    return table(
        frame,
        [
            Column(key="preset", title="Preset", kind="code"),
            Column(key=f"axis_{MODEL}", title="Model", kind="code"),
            _context_column(frame),
            *(
                [Column(key=f"axis_{PARALLELISM}", title="Parallelism", kind="code")]
                if PARALLELISM in view.axes
                else []
            ),
            Column(key="output_tok_per_s", title="Output", unit="tok/s", kind="number", digits=2),
            Column(key="input_tok_per_s", title="Prompt", unit="tok/s", kind="number", digits=2),
            *(
                Column(key=key, title=title, unit="tok/s", kind="number", digits=2)
                for key, title in OF_REQUESTS.items()
                if frame[key].is_not_null().any()
            ),
            Column(key="latency_s_mean", title="Mean latency", unit="s", kind="number", digits=2),
            Column(key="requests_failed", title="Requests failed", kind="number"),
            Column(key="hardware", title="Hardware"),
        ],
        name="presets",
        title="Every result, by context and model",
        hrefs={"preset": "href"},
        note="In order of output throughput within a context and model; different models do not rank.",
    )


def bars(view: SweepView) -> list[Figure]:
    """The output throughput of each preset as bars, a figure for each context and a panel for each model."""
    found: list[Figure] = []
    for context in view.axes[CONTEXT]:
        frames = [rows(view, model, context) for model in view.axes[MODEL]]
        measured = [frame for frame in frames if frame["output_tok_per_s"].is_not_null().any()]
        if not measured:
            continue
        frame = pl.concat(measured).select(
            pl.col(f"axis_{MODEL}").alias("model"), "preset", value="output_tok_per_s", prompt="input_tok_per_s"
        )
        order = frame["preset"].unique(maintain_order=True).sort().to_list()
        beside = max(1, ROOM // (PANEL + 7 * max(map(len, order))))
        tokens = contexts(view)[context]
        label = f"{tokens:,}" if isinstance(tokens, int) else tokens
        chart = (
            alt.Chart(frame)
            .mark_bar(color=theme.SERIES[0], height={"band": 0.7})
            .encode(
                y=alt.Y("preset:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, labelColor=theme.INK)),
                x=alt.X("value:Q", title="Output throughput (tok/s)"),
                tooltip=["model:N", "preset:N", alt.Tooltip("value:Q", title="tok/s", format=",.4~r")],
            )
            .properties(width=PANEL, height=alt.Step(18))
            .facet(
                facet=alt.Facet("model:N", title=None, sort=list(view.axes[MODEL])), columns=min(beside, len(measured))
            )
            .resolve_scale(x="independent", y="independent")
        )
        found.append(
            figure(
                chart,
                frame,
                {"model": "Model", "preset": "Preset", "value": "Output (tok/s)", "prompt": "Prompt (tok/s)"},
                name=f"presets-{context}",
                title=f"Output throughput at a context of {label}",
                caption=f"{_launches(view)}, without an interval."
                if found
                else "Each panel is a model, each bar a preset; models have scales of their own. "
                f"{_launches(view)}, without an interval.",
            )
        )
    return found
