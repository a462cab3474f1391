"""Trial request: what is to be launched, and the request files from which nodes and client work.

Request files lie in a private folder of the trial outside the archive, because one of them is the trial's API key.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpeak.errors import PlanError, suggestion
from tokenpeak.files import write_atomically
from tokenpeak.loadgen.job import ANSWERS, EarlyStop, JobRun, LoadJob
from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.metrics import PER_GPU
from tokenpeak.node.engine.builds import engine_build, is_vllm
from tokenpeak.node.engine.engine import trial_key
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.protocol import requests
from tokenpeak.node.protocol.requests import limits
from tokenpeak.plan.node_kinds import build_of, known_flags_of
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.records import Config, NodeFacts, Plan, PlannedConfig, Production
from tokenpeak.search.history import Proposal
from tokenpeak.spec.engine_build import server_command
from tokenpeak.spec.load import ExternalLoad
from tokenpeak.spec.quality import QualityJob
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import ExternalWorkload, ProductionWorkload
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.installation import MasterSecret, master_secret, own_script
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.vllm.command import engine_argv, engine_env
from tokenpeak.vllm.flags import FlagFacts

_SEEDS_PER_WORKLOAD = 1000
_HOLDOUT_SEED_SHIFT = 500
"""Beyond the seeds of all other trials."""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """A config to launch on a node. `keep_lock` leaves the node to this sweep when the trial has ended."""

    sweep_id: str
    trial_id: str
    spec: SweepSpec
    node: Node
    facts: NodeFacts
    hardware: str
    """The label of the node's kind of hardware in this sweep."""
    declaration: Mapping[str, Any]
    proposal: Proposal
    planned: PlannedConfig
    restore_production: bool
    keep_lock: bool
    trial_deadline_s: float
    """After this, the node gives itself back by itself."""
    load_hosts: tuple[LoadHost, ...] = ()
    """Who offers the load together; empty: this machine."""
    idle_s: float = 0.0
    """How long the node's idle power is measured before the engine starts."""
    quality: QualityJob | None = None
    """What is measured of its answers; None: nothing."""
    lease_offset_s: float = 0.0
    """How much longer than the sweep's lease the node's is."""

    @property
    def config(self) -> Config:
        """What is launched."""
        return self.planned.config

    @property
    def lease_s(self) -> float:
        """After so long without a sign of the controller, the node gives itself back."""
        return self.spec.deadlines.lease_s + self.lease_offset_s

    @property
    def asked_version(self) -> str | None:
        """The vLLM version whose flags are spoken: the config's own, else what was probed; None of another server."""
        asked = self.config.engine_version
        return (asked or self.facts.engine_version) if is_vllm(asked) else None

    def served_model(self) -> str:
        """What the engine is to serve: the node's folder of the declared model, else the config's own."""
        declared = self.declaration.get("model") or {}
        name = self.config.model.name
        return str(declared["path"]) if declared.get("path") and name == declared.get("name") else name

    def argv(self) -> list[str]:
        """The engine's command line; raises PlanError where its build is gone or has no flag for the config."""
        config = self.config
        try:
            build = engine_build(dict(self.declaration), config.engine)
        except ScriptError as error:
            raise PlanError(error.text) from error
        host, port, model = str(self.declaration["host"]), int(self.declaration["port"]), self.served_model()
        if not is_vllm(config.engine_version):
            own = server_command(build["command"], host=host, port=port, model=model, name=config.model.served_name)
            return [*own, *config.args]
        served = config.model.model_copy(update={"name": model})
        return engine_argv(
            config.model_copy(update={"model": served}),
            host=host,
            port=port,
            engine_version=self.asked_version,
            executable=tuple(build["command"]),
            known=self._known_flags(),
        )

    def env(self) -> dict[str, str]:
        """The variables that the config sets on top of the inventory's, in this version's words."""
        if not is_vllm(self.config.engine_version):
            return self.config.env
        env = self.facts.engine_env
        return engine_env(self.config, engine_version=self.asked_version, inventory=env, known=self._known_flags())

    def _known_flags(self) -> Mapping[str, FlagFacts] | None:
        return known_flags_of(build_of(self.config, self.facts), self.asked_version)


class RequestFiles:
    """Where the trial's request files lie and where its client writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launch, self.finish = folder / "launch.json", folder / "finish.json"
        """Sent to the node's commands of these names."""
        self.job, self.api_key = folder / "job.json", folder / "api-key"
        """Read by the load client."""
        self.output = folder / "load"
        """Where the load client writes its results."""
        self.progress = folder / "progress.json"
        """Rewritten by the load client about once a second."""

    @property
    def answers(self) -> Path | None:
        """What the engine answered when its quality was measured; None where it was not, or not to the end."""
        path = self.output / ANSWERS
        return path if path.is_file() else None


def write_requests(
    request: TrialRequest,
    folder: Path,
    *,
    argv: Sequence[str],
    started_at_unix_s: float,
    secret: MasterSecret,
    claim: SweepClaim,
    production_at_start: Production | None,
) -> RequestFiles:
    """Write the request files of a trial into `folder`, readable by this user alone.

    Raises PlanError for a config that no node would take.
    """
    files = RequestFiles(folder=folder)
    files.output.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    deadlines = request.spec.deadlines
    nonce = secrets.token_hex(16)
    launch = requests.LaunchRequest(
        trial_id=request.trial_id,
        holder=claim.holder,
        claim=claim.on_node,
        secret=secret.name,
        key_nonce=nonce,
        script=own_script(),
        argv=list(argv),
        env=request.env(),
        served_model=request.config.model.served_name,
        engine=request.config.engine,
        engine_version=request.asked_version,
        engine_digest=build_of(request.config, request.facts).digest,
        model=request.served_model(),
        deadline_s=deadlines.engine_ready_s,
        lease_s=request.lease_s,
        trial_deadline_s=request.trial_deadline_s,
        # The guard gives the node back by these.
        engine_stop_s=deadlines.engine_stop_s,
        production_ready_s=deadlines.production_ready_s,
        production_at_start=at_start(production_at_start),
        idle_s=request.idle_s,
    )
    try:
        _write(files.launch, requests.as_json(launch))
    except ScriptError as error:
        raise PlanError(error.text) from error
    restores, keeps = request.restore_production, request.keep_lock
    write_finish(request, files, claim=claim, restore_production=restores, keep_lock=keeps)
    key = trial_key(secret.of_node(request.node).encode(), request.trial_id, claim.holder, nonce)
    write_private(files.api_key, key + "\n")
    write_private(files.job, _load_job(request, files, started_at_unix_s).model_dump_json())
    return files


def at_start(production: Production | None) -> dict[str, Any] | None:
    """What a node gets to know of the production that it had when the sweep began."""
    return None if production is None else {"running": production.running, "model": production.model}


def write_finish(
    request: TrialRequest, files: RequestFiles, *, claim: SweepClaim, restore_production: bool, keep_lock: bool
) -> None:
    """Write the request of the finish command, replacing an earlier one."""
    finish = requests.FinishRequest(
        trial_id=request.trial_id,
        holder=claim.holder,
        claim=claim.on_node,
        restore_production=restore_production,
        keep_lock=keep_lock,
        engine_stop_s=request.spec.deadlines.engine_stop_s,
        production_ready_s=request.spec.deadlines.production_ready_s,
    )
    _write(files.finish, requests.as_json(finish))


def load_runs(spec: SweepSpec, *, holdout: bool = False) -> tuple[JobRun, ...]:
    """Every workload at each of its load levels, in order, as the load client takes them.

    Raises PlanError for a workload from production, which a sweep makes a trace of first.
    """
    runs: list[JobRun] = []
    shift = _HOLDOUT_SEED_SHIFT if holdout else 0
    for plan in spec.workloads:
        for level in plan.levels:
            # The same run of every config has the same seed, so that configs are compared on the same requests.
            assert not isinstance(plan.workload, ExternalWorkload), "a plan refuses what cannot be offered"
            if isinstance(plan.workload, ProductionWorkload):
                raise PlanError(
                    f"Workload {plan.workload.name!r} is read off production when a sweep begins. Elsewhere give a "
                    "trace: `tokenpeak observe` writes one."
                )
            assert not isinstance(level, ExternalLoad), "a plan refuses what cannot be offered"
            seed = plan.workload.seed * _SEEDS_PER_WORKLOAD + shift + len(runs)
            runs.append(JobRun(run_index=len(runs), workload=plan.workload, level=level, slo=spec.slo, seed=seed))
    if ends_early(spec):
        # In every trial of the sweep, so that a run is compared with runs that had the same before them.
        objective = spec.objective_run()
        runs.sort(key=lambda run: (run.workload.name, run.level.label) != objective)
    return tuple(runs)


def ends_early(spec: SweepSpec) -> bool:
    """Whether a trial's first run may end it: one objective, read from that run alone, in a search that learns.

    With several objectives a config that is behind in the first may be ahead in another.
    """
    single = not spec.objective.also and not spec.objective.is_rate
    return single and spec.search.strategy == "adaptive"


def _early_stop(request: TrialRequest) -> EarlyStop | None:
    threshold = request.proposal.early_stop_threshold
    if threshold is None or not ends_early(request.spec):
        return None
    lower = objective_direction(request.spec) == "lower"
    metric = request.spec.objective.metric
    # The load generator knows of no GPUs: what one must reach is asked of all that the engine takes.
    if (whole := next((name for name, per_gpu in PER_GPU.items() if per_gpu == metric), None)) is not None:
        metric, threshold = whole, threshold * (request.planned.config.gpus or 1)
    return EarlyStop(metric=metric, threshold=threshold, lower_is_better=lower)


def _load_job(request: TrialRequest, files: RequestFiles, started_at_unix_s: float) -> LoadJob:
    host, port = str(request.declaration["host"]), int(request.declaration["port"])
    base_url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return LoadJob(
        base_url=base_url,
        model=request.config.model.served_name,
        api_key_file=files.api_key,
        hosts=request.load_hosts,
        runs=load_runs(request.spec, holdout=request.proposal.holdout),
        trial_started_at_unix_s=started_at_unix_s,
        output_dir=files.output,
        progress_file=files.progress,
        metrics_url=f"{base_url}/metrics",
        run_deadline_s=request.spec.deadlines.run_s,
        early_stop=_early_stop(request),
        events_for_usage=not is_vllm(request.config.engine_version),
        quality=request.quality,
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(content))


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone can read, replacing an earlier one."""
    write_atomically(path, text, mode=0o600, durable=False)


def write_hand_trial(
    path: Path, config_name: str | None, *, spec: SweepSpec, plan: Plan, node: Node, facts: NodeFacts
) -> PlannedConfig:
    """Write the variables to `path`, and the requests into a folder beside it; which config it is.

    Without a name that is the plan's first. Raises PlanError for a config that the plan has not, and for a node whose
    declaration cannot be rendered here.
    """
    planned = _planned(plan, config_name)
    if node.declaration is None:
        raise PlanError(f"The declaration of {node.name} cannot be rendered here: see tokenpeak check.")
    most = limits(dict(node.declaration))
    deadlines = spec.deadlines
    trial_id = f"0001-{planned.config.config_id}"
    request = TrialRequest(
        sweep_id="by-hand",
        trial_id=trial_id,
        spec=spec,
        node=node,
        facts=facts,
        hardware=plan.hardware,
        declaration=node.declaration,
        proposal=Proposal(config_id=planned.config.config_id, replicate=0, reason="by hand"),
        planned=planned,
        restore_production=True,
        keep_lock=False,
        trial_deadline_s=most["trial_deadline_max_s"] - deadlines.engine_stop_s - deadlines.production_ready_s,
        lease_offset_s=most["lease_max_s"] - deadlines.lease_s,
    )
    # A name of its own, so that the node takes no earlier one for a newer controller of the same sweep.
    claim = SweepClaim(Path(f"by-hand-{secrets.token_hex(4)}"), 1, Interrupt())
    files = write_requests(
        request,
        path.absolute().with_suffix(".d") / f"{trial_id}-{secrets.token_hex(4)}",
        argv=request.argv(),
        started_at_unix_s=time.time(),
        secret=master_secret(),
        claim=claim,
        production_at_start=None,
    )
    trial = {"node": node.name, "launch": str(files.launch), "job": str(files.job), "finish": str(files.finish)}
    path.write_text(json.dumps({"tokenpeak_trial": trial}, indent=1) + "\n")
    return planned


def _planned(plan: Plan, config_name: str | None) -> PlannedConfig:
    """The config of that name."""
    names = [each.config.name for each in plan.feasible]
    planned = next((each for each in plan.feasible if config_name in (None, each.config.name)), None)
    if planned is None:
        raise PlanError(f"The plan has no config {config_name!r}. {suggestion(config_name or '', names)}")
    return planned
