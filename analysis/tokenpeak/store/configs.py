"""Config row: a config of the plan with its prediction, or one that was launched without being planned."""

from collections.abc import Iterable

from tokenpeak.records import Config, Plan, Prediction, SweepRecord
from tokenpeak.store.columns import canonical_json

Row = dict[str, object]


def config_rows(sweep: SweepRecord) -> dict[tuple[str, str], Row]:
    """The configs of all plans by hardware and id, feasible ones first."""
    rows: dict[tuple[str, str], Row] = {}
    for plan in sweep.plans:
        for row in _plan_rows(sweep.sweep_id, plan):
            rows.setdefault((plan.hardware, str(row["config_id"])), row)
    return rows


def _plan_rows(sweep_id: str, plan: Plan) -> Iterable[Row]:
    for planned in plan.feasible:
        row = config_row(sweep_id, plan.hardware, planned.config, "feasible")
        yield (
            row
            | predicted(planned.prediction)
            | {
                "config_class": planned.config_class,
                "advice": list(planned.advice),
            }
        )
    for dropped in plan.dropped:
        row = config_row(sweep_id, plan.hardware, dropped.config, "dropped")
        yield row | {"dropped_rule": dropped.rule, "dropped_reason": dropped.reason}


def config_row(sweep_id: str, hardware: str, config: Config, status: str) -> Row:
    """The row of a config that nothing is known of yet but what it is."""
    return {
        "sweep_id": sweep_id,
        "hardware": hardware,
        "config_id": config.config_id,
        "config_name": config.name,
        "config_class": None,
        "status": status,
        "dropped_rule": None,
        "dropped_reason": None,
        "model_name": config.model.name,
        "model_revision": config.model.revision,
        "served_name": config.model.served_name,
        "engine_version": config.engine_version,
        "engine_build": config.engine,
        "forced": config.force,
        "flags": canonical_json(config.flags),
        "env": canonical_json(config.env),
        "choices": canonical_json(config.choices),
        "advice": [],
        "rank": None,
        "objective_mean": None,
        "objective_unproven_mean": None,
    } | predicted(None)


def predicted(prediction: Prediction | None) -> Row:
    """The columns of a prediction; all null without one."""
    return {f"predicted_{name}": getattr(prediction, name) if prediction else None for name in Prediction.model_fields}
