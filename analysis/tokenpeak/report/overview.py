"""The overview's own blocks: key figures of the recommended config, what the sweep cost, what to look at next."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from tokenpeak.plan.engine_builds import build_of
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import NodeFacts
from tokenpeak.report import presets, rates, tools
from tokenpeak.report.answers import confidence_words, launches, recommendation
from tokenpeak.report.blocks import (
    Facts,
    Sentence,
    Snippets,
    Tile,
    Tiles,
    number,
    percent,
    trimmed,
)
from tokenpeak.report.deploy import snippets
from tokenpeak.report.figures import slug
from tokenpeak.report.ranking import Ranking, rank
from tokenpeak.report.view import SweepView


def recommends(view: SweepView) -> bool:
    """A config is to be recommended: the sweep compares configs, rather than tools or presets of hardware."""
    return not (tools.compares(view) or presets.has_presets(view))


def answers_of(view: SweepView) -> list[Sentence]:
    """What the sweep says in a sentence, or in one for each kind of hardware."""
    if tools.compares(view):
        return [tools.answer_tools(view)]
    if presets.has_presets(view):
        return [presets.answer_presets(view)]
    return [recommendation(view, rank(view, hardware)) for hardware in view.hardware]


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
        containers=takes_nvidia_containers(nodes),
        inventory_env=nodes[0].engine_env if nodes else None,
        image=build_of(config, nodes[0]).image if nodes else None,
        name=f"deploy-{slug(ranked.hardware)}",
    )


def takes_nvidia_containers(nodes: Sequence[NodeFacts]) -> bool:
    """Containers and resources of NVIDIA's GPUs suit these nodes, as far as is known of them."""
    known = [facts for node in nodes for gpu in node.gpus if (facts := gpu_facts(gpu.name))]
    return all(facts.vendor == "nvidia" for facts in known) and not any(node.cpu and not node.gpus for node in nodes)


def key_figures(view: SweepView, ranked: Ranking) -> Tiles | None:
    """The key figures of the recommended config, each against what it is measured by."""
    recommended = ranked.recommended
    if recommended is None:
        return None
    interval = (
        f"{_show(recommended['low'])} to {_show(recommended['high'])} (95%), n={recommended['n']}"
        if recommended["low"] is not None
        else f"n={recommended['n']}, no interval"
    )
    if recommended["objective_holdout"] is not None:
        interval += f"; holdout run {_show(recommended['objective_holdout'])}"
    tiles = [Tile(label=view.metric_title, value=_show(recommended["objective"]), unit=view.metric.unit, note=interval)]
    # A gain that launches of one config differ by as much is no key figure.
    is_baseline = ranked.baseline is not None and recommended["config_id"] == ranked.baseline.config_id
    if ranked.baseline and recommended["gain"] is not None and not is_baseline and not ranked.vague:
        note = f"over {ranked.baseline.words}{'' if ranked.replicated else f', in {launches(recommended)}'}"
        tiles.append(Tile(label="Gain", value=percent(float(str(recommended["gain"]))), note=note))
    if recommended.get("ttft_s_p95") is not None:
        tiles.append(
            Tile(
                label="TTFT p95",
                value=number(float(str(recommended["ttft_s_p95"])) * 1000),
                unit="ms",
                note=f"at {view.objective_place}",
            )
        )
    if recommended.get("tpot_s_p95") is not None:
        tiles.append(
            Tile(
                label="TPOT p95",
                value=number(float(str(recommended["tpot_s_p95"])) * 1000),
                unit="ms",
                note=_slo_note(recommended),
            )
        )
    # Where it is the objective, it is the first tile already.
    if view.metric.name != "max_rate_per_s" and (highest := _rate_tile(view, ranked, recommended)):
        tiles.append(highest)
    if recommended.get("energy_j_per_output_tok") is not None:
        tiles.append(
            Tile(
                label="Energy",
                value=_show(recommended["energy_j_per_output_tok"]),
                unit="J/token",
                note=_energy_note(view, recommended),
                mark=_energy_mark(view, recommended),
            )
        )
    if recommended.get("cost_per_1m_output_tok") is not None:
        tiles.append(
            Tile(
                label="Cost",
                value=_show(recommended["cost_per_1m_output_tok"]),
                unit=f"{view.spec.energy.currency}/1M tokens",
            )
        )
    if (share := _limit_share(view, ranked)) is not None:
        tiles.append(Tile(label="Hardware's limit", value=f"{share:.0%}", note="of it, by the performance model"))
    return Tiles(tiles=tuple(tiles))


def _rate_tile(view: SweepView, ranked: Ranking, recommended: dict[str, object]) -> Tile | None:
    """The highest rate of the first workload that has rates, where there is an SLO."""
    workloads = rates.rated_workloads(view)
    if not workloads or not view.slo_words:
        return None
    found = rates.highest_rates(rates.open_runs(view, ranked.hardware, workloads[0])).filter(
        pl.col("config_id") == recommended["config_id"]
    )
    if not found["n"].sum():
        return None
    row = found.row(0, named=True)
    return Tile(
        label="Rate within SLO",
        value=trimmed(row["holds"]) if row["holds"] is not None else "none",
        unit="req/s" if row["holds"] is not None else "",
        note=f"breaks at {trimmed(row['breaks'])}" if row["breaks"] is not None else "no rate judged breaks it",
    )


def _show(value: object) -> str:
    return number(value) if isinstance(value, int | float) else "–"


def _slo_note(recommended: dict[str, object]) -> str:
    if recommended.get("slo_met") is None:
        return "no SLO judged"
    if not recommended["slo_met"]:
        return "SLO broken at this load"
    confidence = recommended["slo_sure"]
    return f"SLO held, {confidence_words(confidence)} confidence" if isinstance(confidence, float) else "SLO held"


def _own_runs(view: SweepView, recommended: dict[str, object]) -> pl.DataFrame:
    return view.objective_runs().filter(pl.col("config_id") == recommended["config_id"])


def _energy_note(view: SweepView, recommended: dict[str, object]) -> str:
    boundary = _own_runs(view, recommended)["energy_boundary"].drop_nulls()
    return str(boundary[0]).replace("_", " ").replace("gpu", "GPU").replace("cpu", "CPU") if boundary.len() else ""


def _energy_mark(view: SweepView, recommended: dict[str, object]) -> str:
    return "estimated" if (_own_runs(view, recommended)["energy_source"] == "estimated_tdp").any() else ""


def _limit_share(view: SweepView, ranked: Ranking) -> float | None:
    """The config's share of what the hardware could give, where it was predicted and the objective is throughput."""
    recommended, plan = ranked.recommended, view.plan_for(ranked.hardware)
    if recommended is None or plan is None or view.spec.objective.metric != "output_tok_per_s":
        return None
    for planned in plan.feasible:
        if (
            planned.config.config_id == recommended["config_id"]
            and planned.prediction
            and planned.prediction.limit_output_tok_per_s
        ):
            return float(str(recommended["objective"])) / planned.prediction.limit_output_tok_per_s
    return None


def cost_of_sweep(view: SweepView) -> Facts:
    """What was tried and what that took."""
    trials = view.trials
    hours = 0.0
    for hardware in view.hardware:
        spent = trials.filter(pl.col("hardware") == hardware)["duration_s"].sum()
        hours += float(spent) * max(1, view.gpus_of(hardware)) / 3600
    energy_j = float(view.runs["energy_j"].drop_nulls().sum()) if view.runs.height else 0.0
    downtime = (
        sum(view.end.production_downtime_s.values())
        if view.end
        else float(trials["production_downtime_s"].drop_nulls().sum())
    )
    served = [node for node in view.record.nodes if node.production and node.production.manager != "none"]
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
            f"{number(view.runs.height)} at {_count(levels, 'load level')}, "
            f"{number(int(view.runs['requests_ok'].sum()))} requests answered",
        ),
        *_unjudged(view),
        ("Wall-clock", _span(ended) if ended else "not ended"),
        ("GPU-hours" if any(node.gpus for node in view.record.nodes) else "Node-hours", number(hours)),
        (
            "Production not serving",
            f"{_span(downtime)} over {_count(len(served), 'node')}" if served else "no node has a production",
        ),
        ("Energy under load", f"{number(energy_j / 3600)} Wh" if energy_j else "not known"),
    ]
    if view.end:
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


def _count(n: int, what: str) -> str:
    return f"{number(n)} {what}{'' if n == 1 else 's'}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
