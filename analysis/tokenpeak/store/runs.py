"""A run as a row: its summary flattened, and what follows from its energy by the spec's factors."""

from tokenpeak.metrics import STATISTICS
from tokenpeak.plan.spec import EnergyFactors
from tokenpeak.records import ClientHealth, Distribution, EngineCounters, MaxRate, RunRecord, RunSummary, TrialRecord
from tokenpeak.stats.objective import metric_value
from tokenpeak.store.tables import canonical_json
from tokenpeak.workload import AnyLevel, ClosedLoad, ExternalLoad, OpenLoad

DERIVED = (
    "energy_kwh_per_1m_output_tok",
    "co2_kg_per_1m_output_tok",
    "water_l_per_1m_output_tok",
    "cost_per_1m_output_tok",
)
"""Metrics that factors of the spec turn energy and speed into."""


def run_row(sweep_id: str, trial: TrialRecord, run: RunRecord, factors: EnergyFactors) -> dict[str, object]:
    """The run's row in the order of tables.RUNS, and `choices` of its trial."""
    level, energy = run.level, run.energy
    return {
        "sweep_id": sweep_id,
        "trial_id": trial.trial_id,
        "run_index": run.run_index,
        "config_id": trial.config.config_id,
        "config_name": trial.config.name,
        "hardware": trial.hardware,
        "node": trial.node,
        "replicate": trial.replicate,
        "simulated": trial.simulated,
        "trial_status": trial.status,
        "workload_name": run.workload.name,
        "workload_kind": run.workload.kind,
        "workload": canonical_json(run.workload.model_dump(mode="json")),
        "level_kind": _kind(level),
        "level_label": run.level_label,
        "concurrency": level.concurrency if isinstance(level, ClosedLoad | ExternalLoad) else None,
        "rate_per_s": level.rate_per_s if isinstance(level, OpenLoad | ExternalLoad) else None,
        "level": canonical_json(level.model_dump(mode="json")),
        "slo": canonical_json(run.slo.model_dump(exclude_none=True)),
        "slo_met": run.slo_met,
        "verdict": run.verdict.status,
        "verdict_codes": [reason.code for reason in run.verdict.reasons],
        "verdict_reasons": [reason.text for reason in run.verdict.reasons],
        "started_at": run.started_at,
        "started_s": run.started_s,
        "measured_from_s": run.measured_from_s,
        "seed": run.seed,
        **_summary(run.summary),
        **_client(run.client),
        **_engine(run.engine),
        "energy_source": energy.source if energy else None,
        "energy_boundary": energy.boundary if energy else None,
        "energy_j": energy.energy_j if energy else None,
        "power_w": energy.power_w if energy else None,
        "energy_j_per_output_tok": energy.energy_j_per_output_tok if energy else None,
        **{name: metric_value(run, name, factors) for name in DERIVED},
        "cost_currency": factors.currency if factors.price_per_node_hour is not None else None,
        **_max_rate(run.max_rate),
        "choices": canonical_json(trial.config.choices),
    }


def _max_rate(found: MaxRate | None) -> dict[str, object]:
    """What a search for the highest rate came to; all null where there was none."""
    return {
        "max_rate_per_s": found.rate_per_s if found else None,
        "max_rate_low_per_s": found.low_per_s if found else None,
        "max_rate_high_per_s": found.high_per_s if found else None,
        "max_rate_confidence": found.confidence if found else None,
        "max_rate_ended": found.ended if found else None,
        "max_rate_probes": canonical_json([probe.model_dump() for probe in found.probes]) if found else None,
    }


def _kind(level: AnyLevel) -> str:
    """closed, open, or unknown where an import does not tell."""
    if isinstance(level, ExternalLoad) and level.rate_per_s is None:
        return "closed" if level.concurrency is not None else "unknown"
    return "closed" if isinstance(level, ClosedLoad) else "open"


def _summary(summary: RunSummary) -> dict[str, object]:
    row: dict[str, object] = {}
    for name, value in summary:
        if isinstance(value, Distribution):
            row |= _flat(name, value)
        elif name in ("failures", "within_limits"):
            row[name] = canonical_json(value)
        elif name == "windowed_output_tok_per_s":
            row[name] = list(summary.windowed_output_tok_per_s)
        else:
            row[name] = value
    return row


def _client(client: ClientHealth) -> dict[str, object]:
    return {
        "client_processes": client.processes,
        "client_cpu_s": client.cpu_s,
        "client_cpu_per_token_s": client.cpu_per_token_s,
        **_flat("client_dispatch_delay_s", client.dispatch_delay_s),
        **_flat("client_loop_lag_s", client.loop_lag_s),
    }


def _engine(engine: EngineCounters | None) -> dict[str, object]:
    return {f"engine_{name}": getattr(engine, name) if engine else None for name in EngineCounters.model_fields}


def _flat(name: str, distribution: Distribution) -> dict[str, object]:
    """A distribution as columns: `NAME_n`, `NAME_mean`, …, `NAME_p99`."""
    statistics = {f"{name}_{statistic}": getattr(distribution, statistic) for statistic in STATISTICS}
    return {f"{name}_n": distribution.n, **statistics}
