"""What holds over several sweeps: the index, the history of each spec on each hardware, comparison, methodology."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tokenpeak.ranking.objective import column_of
from tokenpeak.report.answers import choices
from tokenpeak.report.blocks import number
from tokenpeak.report.calibrations import calibrations
from tokenpeak.report.claims import CLAIMS_FILE
from tokenpeak.report.overview import answers_of, recommends
from tokenpeak.report.ranking import rank
from tokenpeak.report.tables import metric_column
from tokenpeak.report.view import SweepView

COMPARED = (
    "output_tok_per_s",
    "ttft_s_p95",
    "tpot_s_p95",
    "latency_s_p95",
    "energy_j_per_output_tok",
)
"""What the comparison page sets side by side, beside the objective."""


def entries(views: Sequence[SweepView]) -> list[dict[str, Any]]:
    """For each sweep, in the order given: what the index says of it."""
    return [
        {
            "sweep_id": view.sweep_id,
            "name": view.record.name,
            "inventory": view.record.inventory,
            "started_at": view.record.started_at,
            "date": view.date_words.removesuffix(" UTC").partition(", imported")[0],
            "facts": view.facts(),
            "marks": view.marks(),
            "trials": view.trials.height,
            "failed": int((view.trials["status"] != "ok").sum()),
            "answers": [each.payload() for each in answers_of(view)],
            "imported": view.record.imported is not None,
            "cautions": view.record.imported.cautions if view.record.imported else (),
            "claims": (view.path / CLAIMS_FILE).is_file(),
            "recommends": recommends(view) and view.spec.endpoint is None,
            "hardware": view.hardware,
            "model": view.model_name,
            "status": "running" if view.end is None else view.end.status,
        }
        for view in views
    ]


def best_of(view: SweepView) -> list[dict[str, Any]]:
    """The best value of each kind of hardware of a sweep."""
    rows = []
    for hardware in view.hardware:
        best = rank(view, hardware).best
        if best is not None:
            rows.append(
                {
                    "key": (
                        view.record.name,
                        view.record.inventory,
                        hardware,
                        view.model_name,
                        view.spec.objective.metric,
                        view.objective_place,
                        view.slo_words,
                    ),
                    "sweep_id": view.sweep_id,
                    "date": view.record.started_at,
                    "hardware": hardware,
                    "config": choices(view, best),
                    "value": best["objective"],
                    "low": best["low"],
                    "high": best["high"],
                    "unit": view.metric.unit,
                    "higher": view.higher_is_better,
                    "margin": view.spec.search.margin,
                    "simulated": view.record.simulated,
                }
            )
    return rows


def trend(views: Sequence[SweepView]) -> list[dict[str, Any]]:
    """Sweeps of one spec on one kind of hardware by date, each against the one before it.

    A change is a regression or a gain only where intervals are apart, or, without intervals, beyond the margin twice.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for view in sorted(views, key=lambda view: view.record.started_at):
        for row in best_of(view):
            groups.setdefault(row["key"], []).append(row)
    found = []
    for key, rows in groups.items():
        if len(rows) < 2:
            continue
        points = []
        for before, row in zip([None, *rows[:-1]], rows, strict=True):
            points.append({**row, "text": number(row["value"]), **_change(before, row)})
        found.append(
            {
                "title": f"{key[0]} on {key[2]}",
                "inventory": key[1],
                "unit": rows[0]["unit"],
                "place": key[5],
                "points": points[::-1],
                "bars": _bars(points),
            }
        )
    return found


def _change(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return {"change": "–", "verdict": "first"}
    ratio = now["value"] / before["value"] - 1
    text = f"{ratio * 100:+.1f}%".replace("-", "−")
    if before["low"] is not None and now["low"] is not None:
        apart = now["low"] > before["high"] or now["high"] < before["low"]
    else:
        apart = abs(ratio) > 2 * now["margin"]
    if not apart:
        return {"change": text, "verdict": "not distinguishable"}
    return {"change": text, "verdict": "better" if (ratio > 0) == now["higher"] else "worse"}


def _bars(points: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Points of a small line over the dates: x and y as shares."""
    values = [point["value"] for point in points]
    low, high = min(values), max(values)
    spread = high - low or 1.0
    return [{"x": index / max(1, len(points) - 1), "y": (value - low) / spread} for index, value in enumerate(values)]


def comparable(views: Sequence[SweepView]) -> dict[str, Any]:
    """Everything that the comparison page needs: each config's result with the environment that it was measured in."""
    sides = []
    for view in views:
        workload, level = view.spec.objective_run()
        asked = next(plan for plan in view.spec.workloads if plan.workload.name == workload)
        for hardware in view.hardware:
            ranked = rank(view, hardware)
            nodes = view.nodes_of(hardware)
            node = nodes[0] if nodes else None
            made = view.record.provenance
            environment = {
                "Sweep": view.sweep_id,
                "Date": view.date_words,
                "Simulated": "yes" if view.record.simulated else "no",
                "Hardware": hardware,
                "Driver": ", ".join(sorted({gpu.driver for gpu in node.gpus if gpu.driver}) if node else ()) or "–",
                "Engine": view.engines(hardware),
                "Model": view.model_name,
                "Workload": _workload_words(asked.workload.model_dump(exclude_defaults=True)),
                "Load level": level,
                "SLO": view.slo_words or "–",
                "Objective": view.metric_title,
                "TokenPeak": f"{made.tokenpeak_version} ({(made.git_revision or 'no revision')[:12]})",
            }
            sides.append(
                {
                    "key": f"{view.sweep_id}|{hardware}",
                    "title": f"{view.sweep_id} · {hardware}",
                    "environment": environment,
                    "objective": view.metric_title,
                    "unit": view.metric.unit,
                    "higher": view.higher_is_better,
                    "margin": view.spec.search.margin,
                    "configs": [_result(view, row) for row in ranked.frame.iter_rows(named=True)],
                }
            )
    rows = [{"key": key, **_measure(key)} for key in COMPARED]
    return {"sides": sides, "rows": rows, "must_match": ["Simulated", "Model", "Workload", "Load level", "Objective"]}


def _workload_words(given: Mapping[str, Any]) -> str:
    """All that defines a workload beside its defaults, so that two are alike where their words are."""
    return f"{given['name']}: " + ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in _as_written(given).items() if key != "name"
    )


def _as_written(given: Mapping[str, Any]) -> dict[str, Any]:
    """A workload's settings as somebody would write them: a whole number has no point."""
    return {key: f"{value:.10g}" if isinstance(value, float) else value for key, value in given.items()}


def _measure(key: str) -> dict[str, Any]:
    """A compared quantity's title, unit and the factor to it."""
    column = metric_column(key)
    return {"title": column.title, "unit": column.unit, "scale": 1000 if column.unit == "ms" else 1}


def _result(view: SweepView, row: dict[str, Any]) -> dict[str, Any]:
    # One figure for the objective everywhere: the ranking's, the geometric mean over launches.
    values = {**row, column_of(view.spec.objective.metric): row["objective"]}
    return {
        "id": row["config_id"],
        "label": choices(view, row),
        "short": row["label"],
        "href": f"{view.sweep_id}/trials/{row['trial_id']}.html",
        "values": {name: values.get(name) for name in ("objective", *COMPARED)},
        **{name: row[name] for name in ("state", "why", "n", "low", "high", "group")},
    }


def methodology(views: Sequence[SweepView]) -> dict[str, Any]:
    """The workloads and factors of each sweep, and the client's own error."""
    return {
        "sweeps": [
            {
                "sweep_id": view.sweep_id,
                "workloads": [
                    (
                        plan.workload.name,
                        _as_written(plan.workload.model_dump(exclude_defaults=True)),
                        [level.label for level in plan.levels],
                    )
                    for plan in view.spec.workloads
                ],
                "energy": view.spec.energy.typical,
                "imported": view.record.imported is not None,
                "calibrations": calibrations(view.record.calibration),
                "client": _client(view.runs),
            }
            for view in views
        ],
    }


def _client(runs: pl.DataFrame) -> list[tuple[str, str]]:
    """How late the load client itself was, over all runs of a sweep."""
    rows = []
    for column, words in (
        ("client_dispatch_delay_s_p99", "requests sent later than due, worst p99 of a run"),
        ("client_loop_lag_s_p99", "event loop late, worst p99 of a run"),
    ):
        if column in runs.columns and (values := runs[column].drop_nulls()).len():
            rows.append((words, f"{number(float(values.max()) * 1000)} ms"))  # type: ignore[arg-type]
    return rows
