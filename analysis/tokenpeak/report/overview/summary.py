"""The overview's own blocks: its sentences, the commands, the first rows of the ranking, what the sweep cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.plan.node_kinds import build_of
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import NodeFacts
from tokenpeak.report.blocks.block import Facts, Sentence, Snippets, Table
from tokenpeak.report.blocks.deploy import snippets
from tokenpeak.report.blocks.digits import counted, number
from tokenpeak.report.blocks.serving_command import Accelerator
from tokenpeak.report.compare import tools
from tokenpeak.report.hardware import presets
from tokenpeak.report.overview.headline import cautions, recommendation
from tokenpeak.report.ranking import ranking_table
from tokenpeak.report.ranking.standings import Ranking, rank
from tokenpeak.report.view import SweepView


def recommends(view: SweepView) -> bool:
    """A config is to be recommended: the sweep compares configs, rather than tools or presets of hardware."""
    return not (tools.compares(view) or presets.has_presets(view))


def answers_of(view: SweepView) -> list[Sentence]:
    """What the sweep says, for each kind of hardware a headline with what a reader of it must not miss."""
    if tools.compares(view):
        return [tools.answer_tools(view)]
    if presets.has_presets(view):
        return [presets.answer_presets(view)]
    ranked = [rank(view, hardware) for hardware in view.hardware]
    return [block for each in ranked for block in (recommendation(view, each), *cautions(view, each))]


def commands(view: SweepView, ranked: Ranking) -> Snippets | Sentence | None:
    """The recommended config in the forms that deployments take, or why there is no command; None for a server."""
    if ranked.choice is None or ranked.recommended is None or ranked.choice.config.endpoint is not None:
        return None
    nodes = view.nodes_of(ranked.hardware)
    (trial,) = view.trials.filter(pl.col("trial_id") == ranked.recommended["trial_id"]).to_dicts()
    launched: list[str] = trial["argv"]
    # What reported itself goes before what was asked for; how it was built (+cpu) is no part of an image's name.
    reported = (trial["engine_version"] or "").split("+")[0]
    config = ranked.choice.config
    version = reported or config.engine_version or (nodes[0].engine_version if nodes else None)
    return snippets(
        config,
        gpus=max(1, view.gpus_used(ranked.hardware).get(ranked.choice.config.config_id, 0)),
        engine_version=version,
        launched=launched,
        accelerator=accelerator_of(nodes),
        inventory_env=nodes[0].engine_env if nodes else None,
        build=build_of(config, nodes[0]) if nodes else None,
        name=f"deploy-{slug(ranked.hardware)}",
    )


FIRST_ROWS = 10
"""Rows of the ranking that the overview shows; its own page has all."""
FIRST_COLUMNS = (
    "label",
    "rank",
    "result",
    "objective",
    "gain",
    "n",
    "slo",
    "quality",
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "energy_j_per_output_tok",
)


def first_rows(view: SweepView, ranked: Ranking) -> Table:
    """The ranking's first rows with its main columns; the recommended config is among them."""
    full = ranking_table.ranking(view, ranked)
    kept = [index for index, column in enumerate(full.columns) if column.key in {*FIRST_COLUMNS, *view.latency_columns}]
    chosen = list(range(min(FIRST_ROWS, len(full.rows))))
    recommended = next((index for index, tone in enumerate(full.row_tones) if tone == "best"), None)
    if recommended is not None and recommended not in chosen:
        chosen = [*chosen[:-1], recommended]
    more = len(full.rows) - len(chosen)
    return replace(
        full,
        name=f"first-{slug(ranked.hardware)}",
        title=(f"The first {len(chosen)} of {len(full.rows)} configs" if more else "All configs")
        + view.where(ranked.hardware),
        columns=tuple(replace(full.columns[index], hidden=False) for index in kept),
        rows=tuple(tuple(full.rows[row][index] for index in kept) for row in chosen),
        row_tones=tuple(full.row_tones[row] for row in chosen),
        note="The ranking page has every config and every metric.",
        span="full",
        scope=slug(ranked.hardware),
    )


def accelerator_of(nodes: Sequence[NodeFacts]) -> Accelerator:
    """What these nodes compute on, as far as is known of them; unknown boards count as NVIDIA's."""
    if any(node.cpu and not node.gpus for node in nodes):
        return "none"
    known = [facts.vendor for node in nodes for gpu in node.gpus if (facts := gpu_facts(gpu.name))]
    return "amd" if "amd" in known else "nvidia"


def cost_of_sweep(view: SweepView) -> Facts:
    """What was tried and what that took."""
    trials = view.trials
    hours = 0.0
    for hardware in view.hardware:
        spent = float(trials.filter(pl.col("hardware") == hardware)["duration_s"].sum())
        hours += spent * max(1, view.gpus_of(hardware)) / 3600
    energy_j = float(view.runs["energy_j"].drop_nulls().sum()) if view.runs.height else 0.0
    downtime = (
        sum(view.end.production_downtime_s.values())
        if view.end
        else float(trials["production_downtime_s"].drop_nulls().sum())
    )
    found_running = set(trials.filter("production_was_running")["node"])
    served = [
        node
        for node in view.record.nodes
        if node.node in found_running or (node.production and node.production.running)
    ]
    theoretical = sum(plan.theoretical for plan in view.record.plans)
    launched = trials.select("hardware", "config_id").unique().height
    dropped = sum(len(plan.dropped) for plan in view.record.plans)
    ended = (view.end.ended_at - view.record.started_at).total_seconds() if view.end else None
    levels = view.runs.select("workload_name", "level_label").n_unique()
    pairs = [
        (
            "Configs",
            f"{number(theoretical)} in the matrix, {number(dropped)} dropped by rules, {number(launched)} launched",
        ),
        (
            "Trials",
            ", ".join(
                f"{count} {status}"
                for status, count in trials.group_by("status", maintain_order=True).len().iter_rows()
            ),
        ),
        (
            "Runs",
            f"{number(view.runs.height)} at {counted(levels, 'load level')}, "
            f"{number(int(view.runs['requests_ok'].sum()))} requests answered",
        ),
        *_unjudged(view),
        ("Wall-clock", _span(ended) if ended else "no end recorded"),
        ("GPU-hours" if any(node.gpus for node in view.record.nodes) else "Node-hours", number(hours)),
        (
            "Production not serving",
            f"{_span(downtime)} over {counted(len(served), 'node')}" if served else "no node served a production",
        ),
        ("Energy under load", f"{number(energy_j / 3600)} Wh" if energy_j else "not known"),
    ]
    if view.end and (served or view.end.unrestored):
        pairs.append(
            (
                "Production restored",
                "on every node"
                if not view.end.unrestored
                else f"not seen to serve again on {', '.join(view.end.unrestored)}",
            )
        )
    if view.malformed:
        pairs.append(("Files that could not be read", "; ".join(view.malformed)))
    return Facts(title="What it took", pairs=tuple(pairs))


def _unjudged(view: SweepView) -> list[tuple[str, str]]:
    """How many runs take no part in any ranking, and why."""
    invalid = view.runs.filter(pl.col("verdict") == "invalid")
    if invalid.is_empty():
        return []
    counts = Counter(code.replace("_", " ") for codes in invalid["verdict_codes"].to_list() for code in codes)
    words = ", ".join(f"{code} {count}" for code, count in counts.most_common())
    return [("Runs excluded from the ranking", f"{number(invalid.height)} of {number(view.runs.height)}: {words}")]


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def provenance(view: SweepView) -> Facts | None:
    """The source, the mapping, and what is not known; None for a sweep of our own."""
    imported = view.record.imported
    if imported is None:
        return None
    pairs = [
        ("Measured by", imported.tool or "not known"),
        ("Measured", imported.measured or "date not known"),
        ("Title", imported.title or ""),
        ("Published", ", ".join(word for word in (imported.publisher, imported.published) if word)),
        ("Address", imported.url or ""),
        ("Read as", imported.format),
        ("Imported", f"{view.record.started_at:%Y-%m-%d}"),
        *(("File", f"{file.name} (SHA-256 {file.sha256[:16]}…)") for file in imported.files),
        *(("Differs", words) for words in imported.differences),
        *(("Not known", words) for words in imported.unknown),
        ("Not mapped", "; ".join(imported.unmapped)),
        ("Mapping", "; ".join(f"{field} from {source}" for field, source in imported.mapping.items())),
    ]
    return Facts(title="Where this is from", pairs=tuple((word, value) for word, value in pairs if value))
