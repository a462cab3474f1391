"""An import as an archive: written beside its place and moved there when it is whole, so that none is half there."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import polars as pl

from tokenpeak.errors import ArchiveError, SpecError
from tokenpeak.exchange.foreign import ForeignNode, ForeignRun, Import
from tokenpeak.files import delete, delete_if_possible, replacing
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.paths import inside, is_name, shown
from tokenpeak.records import (
    ClientHealth,
    Config,
    Distribution,
    EndRecord,
    Gpu,
    ModelName,
    NodeFacts,
    Plan,
    PlannedConfig,
    Provenance,
    RunRecord,
    SweepRecord,
    TrialRecord,
    Verdict,
    config_hash,
    hardware_groups,
)
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive

UNKNOWN_CLIENT = ClientHealth(processes=None, dispatch_delay_s=Distribution(n=None), loop_lag_s=Distribution(n=None))


def write_import(source: Import, folder: Path, *, sweep_id: str | None) -> Archive:
    """The archive of an import at `folder`/SWEEP_ID; an archive that is there already is refused."""
    imported_at = source.imported_at or datetime.now(UTC).replace(microsecond=0)
    name = sweep_id or f"{imported_at:%Y%m%d-%H%M%S}-{source.name}-import"
    if not is_name(name):
        raise ArchiveError(
            f"{shown(name)} is no name of an archive. Give letters, digits, dots and dashes: --name my-results."
        )
    target = inside(folder, name)
    if target.exists():
        raise ArchiveError(f"{target} exists already. Give another --name, or remove it first.")
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / f".{name}.importing-{os.getpid()}"
    delete(staging)
    try:
        _write(source, Archive(staging), name, imported_at)
        staging.rename(target)
    finally:
        delete_if_possible(staging)
    return Archive(target)


def _write(source: Import, archive: Archive, sweep_id: str, imported_at: datetime) -> None:
    if not source.runs:
        raise ArchiveError("Nothing to import: the files hold no run.")
    nodes = {node.name: _node(node) for node in source.nodes}
    trials = _trials(source, nodes, sweep_id, imported_at)
    provenance = trials[0][0].provenance
    archive.write_sweep(
        SweepRecord(
            sweep_id=sweep_id,
            name=source.name,
            inventory="import",
            started_at=imported_at,
            simulated=False,
            spec=_spec(source),
            nodes=tuple(nodes.values()),
            plans=_plans([trial for trial, _ in trials], nodes, source.theoretical),
            provenance=provenance,
            imported=source.imported,
        )
    )
    scratch = archive.path / ".requests.parquet"
    for trial, requests in trials:
        if requests is not None:
            with replacing(scratch, durable=False) as part:
                requests.write_parquet(part, compression="zstd")
        archive.write_trial(trial, scratch if requests is not None else None)
    delete(scratch)
    archive.write_end(EndRecord(sweep_id=sweep_id, status="completed", ended_at=imported_at, trials=len(trials)))


def _node(node: ForeignNode) -> NodeFacts:
    gpus = tuple(
        Gpu(index=index, name=node.gpu, power_limit_w=node.power_limit_w)
        for index in range(node.count)
        if node.gpu is not None
    )
    machine = MachineFacts(
        gpus=gpus,
        interconnect=node.interconnect,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        engine_version=node.engine_version,
    )
    return NodeFacts.of(machine, node=node.name, source="published")


def _config(run: ForeignRun) -> Config:
    model = ModelName(name=run.model, served_name=run.model)
    content = {
        "model": model.model_dump(),
        "flags": dict(run.flags),
        "env": dict(run.env),
        "engine_version": run.engine_version,
        "name": run.config,
    }
    return Config(
        config_id=config_hash(content),
        name=run.config,
        choices=dict(run.choices),
        model=model,
        flags=dict(run.flags),
        env=dict(run.env),
        engine_version=run.engine_version,
    )


Pending = tuple[Config, int, list[ForeignRun]]


def _trials(
    source: Import, nodes: dict[str, NodeFacts], sweep_id: str, imported_at: datetime
) -> list[tuple[TrialRecord, pl.DataFrame | None]]:
    """Runs of equal node, config and replicate as one trial; a run that repeats another's level opens the next one."""
    labels = {node.node: label for label, same in hardware_groups(nodes.values()).items() for node in same}
    grouped: dict[tuple[str, str, int], Pending] = {}
    for run in source.runs:
        if run.node not in nodes:
            raise ArchiveError(f"Run of {run.config!r} names node {run.node!r}, which the import does not describe.")
        config = _config(run)
        replicate = run.replicate if run.replicate is not None else 0
        while run.replicate is None and _taken(grouped.get((run.node, config.config_id, replicate)), run):
            replicate += 1
        _, _, runs = grouped.setdefault((run.node, config.config_id, replicate), (config, replicate, []))
        runs.append(run)
    provenance = Provenance(tokenpeak_version=version("tokenpeak"), python=platform.python_version())
    trials = []
    for number, ((node, _, _), (config, replicate, runs)) in enumerate(grouped.items(), start=1):
        started_at = next((run.started_at for run in runs if run.started_at), imported_at)
        startup = max((run.startup for run in runs), key=lambda facts: len(facts.model_dump(exclude_none=True)))
        trials.append(
            (
                TrialRecord(
                    sweep_id=sweep_id,
                    trial_id=f"{number:04d}-{config.config_id[:8]}",
                    node=node,
                    hardware=labels[node],
                    config=config,
                    config_class=config.config_id,
                    replicate=replicate,
                    simulated=False,
                    status="ok",
                    started_at=started_at,
                    duration_s=None,
                    startup=startup,
                    stated_quality=next((run.stated_quality for run in runs if run.stated_quality), None),
                    runs=tuple(_run(index, run, source, imported_at) for index, run in enumerate(runs)),
                    provenance=provenance,
                ),
                _requests(runs),
            )
        )
    return trials


def _taken(pending: Pending | None, run: ForeignRun) -> bool:
    return pending is not None and any(
        (other.workload.name, other.level.label) == (run.workload.name, run.level.label) for other in pending[2]
    )


def _run(index: int, run: ForeignRun, source: Import, imported_at: datetime) -> RunRecord:
    return RunRecord(
        run_index=index,
        workload=run.workload,
        level=run.level,
        level_label=run.level.label,
        slo=run.slo or Slo.model_validate(dict(source.slo)),
        started_at=run.started_at or imported_at,
        started_s=None,
        seed=None,
        summary=run.summary,
        slo_met=run.slo_met,
        client=UNKNOWN_CLIENT,
        energy=run.energy,
        verdict=Verdict(status="not_judged", reasons=run.reasons),
    )


def _requests(runs: Sequence[ForeignRun]) -> pl.DataFrame | None:
    frames = [
        run.requests.with_columns(pl.lit(index, dtype=pl.Int64).alias("run_index"))
        for index, run in enumerate(runs)
        if run.requests is not None
    ]
    return pl.concat(frames) if frames else None


def _plans(trials: Sequence[TrialRecord], nodes: dict[str, NodeFacts], theoretical: int | None) -> tuple[Plan, ...]:
    """For each kind of hardware the configs that were run."""
    plans = []
    groups = hardware_groups(nodes.values())
    for hardware in dict.fromkeys(trial.hardware for trial in trials):
        own = {trial.config.config_id: trial.config for trial in trials if trial.hardware == hardware}
        plans.append(
            Plan(
                hardware=hardware,
                gpus=len(groups[hardware][0].gpus) or 1,
                nodes=tuple(node.node for node in groups[hardware]),
                theoretical=max(theoretical or 0, len(own)),
                feasible=tuple(PlannedConfig(config=config, config_class=config.config_id) for config in own.values()),
            )
        )
    return tuple(plans)


def _ordered(choices: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """Alternatives by number where all are numbers, else as they came."""
    try:
        return [choices[name] for name in sorted(choices, key=float)]
    except ValueError:
        return list(choices.values())


def _spec(source: Import) -> dict[str, object]:
    """A spec that describes what was run; it cannot be run again, since its workloads are another tool's."""
    axes: dict[str, dict[str, dict[str, object]]] = {}
    workloads: dict[str, tuple[dict[str, object], dict[str, dict[str, object]]]] = {}
    for run in source.runs:
        for axis, choice in run.choices.items():
            flags = {axis: run.flags[axis]} if axis in run.flags else {}
            axes.setdefault(axis, {}).setdefault(choice, {"name": choice, "flags": flags})
        workload, levels = workloads.setdefault(run.workload.name, (run.workload.model_dump(mode="json"), {}))
        if workload["max_output_tokens"] != run.workload.max_output_tokens:
            workload["max_output_tokens"] = None  # the runs differ in it; the record of each has its own
        levels.setdefault(run.level.label, run.level.model_dump(mode="json", exclude_none=True))
    raw = {
        "name": source.name,
        "description": source.description,
        "axes": {axis: _ordered(choices) for axis, choices in axes.items()},
        "workloads": [
            {"workload": workload, "levels": list(levels.values())} for workload, levels in workloads.values()
        ],
        "objective": dict(source.objective),
        "slo": dict(source.slo),
        "energy": dict(source.energy),
    }
    try:
        return parse_spec(raw, Path(f"{source.name}.yml")).model_dump(mode="json")
    except SpecError as error:
        raise ArchiveError(f"The import makes no sense as a sweep: {error}") from error
