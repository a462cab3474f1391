"""Run row: a run's summary flattened, and what follows from its energy by the spec's factors."""

from collections.abc import Mapping, Sequence

from tokenpeak.metrics import DERIVED, STATISTICS
from tokenpeak.ranking.objective import metric_values
from tokenpeak.records import ClientHealth, Distribution, EngineCounters, MaxRate, RunRecord, RunSummary, TrialRecord
from tokenpeak.results.preemption import recomputed_share
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.workload import AnyLevel, ClosedLoad, ExternalLoad, OpenLoad, StagedLoad
from tokenpeak.store.columns import canonical_json


def run_row(
    sweep_id: str, trial: TrialRecord, run: RunRecord, factors: EnergyFactors, gpus: int | None
) -> dict[str, object]:
    """The run's row in the order of tables.RUNS, and `choices` of its trial; `gpus` is how many its engine takes."""
    level, energy = run.level, run.energy
    values = metric_values(run, factors, gpus=gpus)
    preemptions = run.engine.preemptions if run.engine is not None else None
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
        "well_measured": run.verdict.well_measured,
        "overloaded": run.verdict.overloaded,
        "rate_held": run.rate_held,
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
        "energy_low_j": energy.energy_low_j if energy else None,
        "energy_high_j": energy.energy_high_j if energy else None,
        "energy_needed_s": energy.needed_s if energy else None,
        "power_w": energy.power_w if energy else None,
        "energy_j_per_output_tok": energy.energy_j_per_output_tok if energy else None,
        **{metric.name: values[metric.name] for metric in DERIVED},
        "saturation_per_s": values["saturation_per_s"],
        "cost_currency": factors.currency if factors.has_price else None,
        **_max_rate(run.max_rate),
        **_steady_state(run),
        "recomputed_share": recomputed_share(preemptions, run.summary) if preemptions is not None else None,
        "temperature_c": run.temperature_c,
        **_per_token_by_boundary(run),
        "choices": canonical_json(trial.config.choices),
    }


def idle_powers(trial: TrialRecord) -> dict[tuple[str, str], float]:
    """What a trial says of its node's idle power, by node and boundary, in W."""
    return {(trial.node, each.boundary): each.power_w for each in trial.idle_power}


def with_idle_power(rows: Sequence[dict[str, object]], idle_w: Mapping[tuple[str, str], float]) -> None:
    """Fill in the idle power of each run's energy boundary on its node, and the share that it comes to."""
    for row in rows:
        drawn_w = idle_w.get((str(row["node"]), str(row["energy_boundary"])))
        power_w = row["power_w"]
        row["idle_power_w"] = drawn_w
        row["idle_share"] = min(1.0, drawn_w / power_w) if drawn_w and isinstance(power_w, float) and power_w else None


def _per_token_by_boundary(run: RunRecord) -> dict[str, object]:
    """The energy per output token of the whole node, and of its processors; null where nothing measured it."""
    energies = [each for each in (run.energy, *run.further_energy) if each and each.source != "estimated_tdp"]
    known = {each.boundary: each.energy_j_per_output_tok for each in energies}
    return {
        "node_j_per_output_tok": known.get("node"),
        "cpu_j_per_output_tok": known.get("cpu_and_dram", known.get("cpu_package")),
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
        "saturation_low_per_s": found.saturation_low_per_s if found else None,
        "saturation_high_per_s": found.saturation_high_per_s if found else None,
    }


def _steady_state(run: RunRecord) -> dict[str, object]:
    """Whether the engine kept up with the run's rate; all null where that was not recorded."""
    found = run.steady_state
    return {
        "steady_state": found.state if found else None,
        "queue_growth": found.growth if found else None,
        "queue_growth_error": found.growth_error if found else None,
        "steady_state_margin": found.margin if found else None,
        "percentile_intervals": canonical_json(run.percentile_intervals) if run.percentile_intervals else None,
    }


def _kind(level: AnyLevel) -> str:
    """closed, open, or unknown where an import does not say."""
    if isinstance(level, ExternalLoad) and level.rate_per_s is None:
        return "closed" if level.concurrency is not None else "unknown"
    if isinstance(level, StagedLoad):
        return "open" if level.open else "closed"
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
