"""Summary on the overview: answers, commands, the ranking's first rows, what the sweep cost, what to do next."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.plan.node_kinds import build_of
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.records import NodeFacts
from tokenpeak.records.sweep import GROUPS_OF_GPUS
from tokenpeak.report import presets
from tokenpeak.report.blocks.block import Facts, Part, Sentence, Snippets, Steps, Table, code, link
from tokenpeak.report.blocks.deploy import snippets
from tokenpeak.report.blocks.digits import counted, number
from tokenpeak.report.blocks.serving_command import Accelerator
from tokenpeak.report.compare import tools
from tokenpeak.report.load import rates
from tokenpeak.report.overview.headline import (
    cautions,
    chosen_config,
    current_phrase,
    random_weights,
    recommendation,
)
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import Ranking, rank
from tokenpeak.report.view import SweepView

FIRST_ROWS = 10
"""Rows of the ranking that the overview shows; its own page has all."""
FIRST_COLUMNS = (
    "label",
    "rank",
    "result",
    "objective",
    "each_launch",
    "also",
    "gain",
    "n",
    "slo",
    "quality",
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "energy_j_per_output_tok",
)


def recommends(view: SweepView) -> bool:
    """A config is to be recommended: the sweep compares configs, rather than tools or presets of hardware."""
    return not (tools.compares(view) or presets.has_presets(view))


def answers_of(view: SweepView) -> list[Sentence]:
    """Answers of the sweep: for each kind of hardware a headline with its cautions."""
    if tools.compares(view):
        return [tools.answer_tools(view)]
    if presets.has_presets(view):
        return [presets.answer_presets(view)]
    ranked = [rank(view, hardware) for hardware in view.hardware]
    return [block for each in ranked for block in (recommendation(view, each), *cautions(view, each))]


NOT_SHOWN = "Not shown to be better."


def commands(view: SweepView, ranked: Ranking) -> Snippets | Sentence | None:
    """The config to run, to keep, that is ahead or one of several equals in the forms of deployments, or why none is.

    None of a server, and where the decision names none of these.
    """
    config, outcome = chosen_config(view, ranked), ranked.decision.outcome
    if config is None or ranked.chosen is None or config.endpoint is not None or not ranked.decision.is_startable:
        return None
    nodes = view.nodes_of(ranked.hardware)
    (trial,) = view.trials.filter(pl.col("trial_id") == ranked.chosen["trial_id"]).to_dicts()
    launched: list[str] = trial["argv"]
    # What reported itself goes before what was asked for; how it was built (+cpu) is no part of an image's name.
    reported = (trial["engine_version"] or "").split("+")[0]
    version = reported or config.engine_version or (nodes[0].engine_version if nodes else None)
    found = snippets(
        config,
        gpus=max(1, view.gpus_used(ranked.hardware).get(config.config_id, 0)),
        engine_version=version,
        launched=launched,
        accelerator=accelerator_of(nodes),
        inventory_env=nodes[0].engine_env if nodes else None,
        build=build_of(config, nodes[0]) if nodes else None,
        name=f"deploy-{slug(ranked.hardware)}",
    )
    keep = f"Nothing has to change: keep {current_phrase(ranked)}."
    words = {"ahead": NOT_SHOWN, "not_known": NOT_SHOWN, "keep": keep}
    if outcome not in words or not isinstance(found, Snippets):
        return found
    marked = (replace(each, note=f"{words[outcome]} {each.note}".strip()) for each in found.snippets)
    return replace(found, snippets=tuple(marked))


def first_rows(view: SweepView, ranked: Ranking) -> Table:
    """The ranking's first rows with its main columns; the decision's config is among them."""
    full = ranking_blocks.ranking_table(view, ranked)
    names = {*FIRST_COLUMNS, throughput_column(view.spec), "inputs_per_s", *view.latency_columns}
    kept = [index for index, column in enumerate(full.columns) if column.key in names]
    chosen = list(range(min(FIRST_ROWS, len(full.rows))))
    named = ranked.frame["config_id"].to_list().index(ranked.decision.config) if ranked.chosen else 0
    if named not in chosen and chosen:
        chosen = [*chosen[:-1], named]
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
    """Accelerator of these nodes, as far as is known of them; unknown boards count as NVIDIA's."""
    if any(node.cpu and not node.gpus for node in nodes):
        return "none"
    known = [facts.vendor for node in nodes for gpu in node.gpus if (facts := gpu_facts(gpu.name))]
    return "amd" if "amd" in known else "nvidia"


BOARD_ENERGY = r"^gpu\d+_energy_j$"
"""Series of the boards' energy counters."""


def _energy_words(view: SweepView) -> str:
    """The energy of all loads and, where counters ran through every launch, of whole launches with their starts."""
    loads_j = float(view.runs["energy_j"].drop_nulls().sum()) if view.runs.height else 0.0
    if not loads_j:
        return "not known"
    words = f"{number(loads_j / 3600)} Wh during loads"
    counters = view.series.filter(pl.col("quantity").str.contains(BOARD_ENERGY))
    counted = counters.group_by("trial_id", "quantity").agg(pl.col("value").max() - pl.col("value").min())
    if set(counted["trial_id"]) != set(view.trials["trial_id"]):
        return words
    return f"{words}, {number(float(counted['value'].sum()) / 3600)} Wh over whole launches by the GPUs' counters"


def cost_of_sweep(view: SweepView) -> Facts:
    """Configs, trials and runs of the sweep, and the time and energy that they took."""
    trials = view.trials
    hours = 0.0
    for hardware in view.hardware:
        spent = float(trials.filter(pl.col("hardware") == hardware)["duration_s"].sum())
        hours += spent * max(1, view.gpus_of(hardware)) / 3600
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
            "Production downtime",
            f"{_span(downtime)} over {counted(len(served), 'node')}" if served else "none: no node served production",
        ),
        ("Energy", _energy_words(view)),
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
    """Answers, confirmation, values beyond the tried ones, the highest rate and a price; None where nothing is left."""
    recommended, decision = ranked.chosen, ranked.decision
    if recommended is None or view.spec.endpoint is not None:
        return None
    title = f"Next{view.where(ranked.hardware)}"
    edges = _edges(view, ranked, recommended)
    if view.record.imported is not None:
        return Steps(steps=tuple(edges), title=title, span="half") if edges else None
    steps: list[tuple[Part, ...]] = []
    if random_weights(view, ranked) and decision.outcome in ("run", "ahead"):
        steps.append(("Measure its answers before it serves anybody: ", code("tokenpeak quality record --help"), "."))
    if any(each.answers == "not_compared" and each.hold != "broken" for each in decision.faster):
        steps.append(("Compare the answers of what is faster: ", code("tokenpeak quality record --help"), "."))
    if not ranked.replicated and len(decision.measured.standings) > 1:
        steps.append(("Confirm the ranking: ", code("search: {replicates: 3}"), " launches each config three times."))
    if len(decision.group) > 1:
        steps.append(("See what else ties, in the ", link("ranking", "ranking.html"), "."))
    steps += edges
    # The sweep of rates that is shipped is of generation.
    if not rates.rated_workloads(view) and not view.spec.pools:
        steps.append(("Find its highest rate within an SLO: ", code("tokenpeak sweep --sweep rates"), "."))
    if not view.spec.energy.has_price and not view.spec.pools:
        steps.append(("Say what a node costs: ", code("tokenpeak report --param price_per_hour=2.5"), "."))
    return Steps(steps=tuple(steps), title=title, span="half") if steps else None


def _numeric(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
