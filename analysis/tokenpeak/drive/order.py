"""One trial as it is ordered: what is to be launched, and the request files from which playbooks and client work.

Request files lie in a private folder of the trial outside the archive, because one of them is the trial's API key.
"""

import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenpeak.drive.inventory import Node
from tokenpeak.drive.probe import secret_name
from tokenpeak.errors import PlanError
from tokenpeak.load.fleet import LoadHost
from tokenpeak.load.job import Bar, LoadJob
from tokenpeak.load.run import JobRun
from tokenpeak.node import protocol
from tokenpeak.node.trouble import Trouble
from tokenpeak.plan.command import engine_argv, engine_env
from tokenpeak.plan.flags import FlagFacts, installed_flags
from tokenpeak.plan.spec import SweepSpec
from tokenpeak.records import Config, NodeFacts, PlannedConfig
from tokenpeak.stats.objective import objective_direction
from tokenpeak.workload import ExternalLoad, ExternalWorkload

_SEEDS_PER_WORKLOAD = 1000
_OTHER_REQUESTS = 500
"""Beyond the seeds of all other trials."""


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """A config to launch on a node. `keep_lock` leaves the node to this sweep when the trial has ended."""

    sweep_id: str
    trial_id: str
    spec: SweepSpec
    node: Node
    facts: NodeFacts
    declaration: Mapping[str, Any]
    planned: PlannedConfig
    replicate: int
    engine_version: str | None
    restore_production: bool
    keep_lock: bool
    trial_deadline_s: float
    """After this, the node gives itself back by itself."""
    load_hosts: tuple[LoadHost, ...] = ()
    """Who offers the load together; empty: this machine."""
    other_requests: bool = False
    """Ask other requests than every other trial does."""
    hopeless_beyond: float | None = None
    """An objective worse than this makes the other runs superfluous."""

    @property
    def config(self) -> Config:
        """What is launched."""
        return self.planned.config

    @property
    def engine_pin(self) -> str | None:
        """The vLLM version whose flags are spoken: the config's own, else the inventory's, else what was probed."""
        return self.config.engine_version or self.engine_version or self.facts.engine_version

    def argv(self) -> list[str]:
        """The engine's command line; raises PlanError when this version cannot be told what the config wants."""
        declared = self.declaration.get("model") or {}
        config = self.config
        if declared.get("path") and config.model.name == declared.get("name"):
            config = config.model_copy(update={"model": config.model.model_copy(update={"name": declared["path"]})})
        return engine_argv(
            config,
            host=str(self.declaration["host"]),
            port=int(self.declaration["port"]),
            engine_version=self.engine_pin,
            executable=tuple(self.declaration["engine"]["command"]),
            known=self._known_flags(),
        )

    def env(self) -> dict[str, str]:
        """The variables that the config sets on top of the inventory's, in this version's words."""
        inventory = self.declaration["engine"].get("env")
        return engine_env(self.config, engine_version=self.engine_pin, inventory=inventory, known=self._known_flags())

    def _known_flags(self) -> Mapping[str, FlagFacts] | None:
        return installed_flags(self.facts.engine_help, self.facts.engine_version, self.engine_pin)


@dataclass(frozen=True, kw_only=True)
class RequestFiles:
    """Where the trial's request files lie and where its client writes."""

    folder: Path

    @property
    def launch(self) -> Path:
        """Read by the node's launch command."""
        return self.folder / "launch.json"

    @property
    def finish(self) -> Path:
        """Read by the node's finish command."""
        return self.folder / "finish.json"

    @property
    def job(self) -> Path:
        """Read by the load client."""
        return self.folder / "job.json"

    @property
    def api_key(self) -> Path:
        """Read by the load client."""
        return self.folder / "api-key"

    @property
    def output(self) -> Path:
        """Where the load client writes its results."""
        return self.folder / "load"

    @property
    def progress(self) -> Path:
        """Rewritten by the load client about once a second."""
        return self.folder / "progress.json"

    def extravars(self) -> dict[str, str]:
        """What the playbooks are told: paths."""
        return {
            "tokenpeak_launch_request": str(self.launch),
            "tokenpeak_finish_request": str(self.finish),
            "tokenpeak_load_job": str(self.job),
        }


def write_requests(
    order: TrialOrder, folder: Path, *, argv: Sequence[str], started_at_unix_s: float, secret: str, holder: str
) -> RequestFiles:
    """Write the request files of a trial into `folder`, readable by this user alone.

    Raises PlanError for a config that no node would take.
    """
    files = RequestFiles(folder=folder)
    files.output.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    deadlines = order.spec.deadlines
    request = protocol.LaunchRequest(
        trial_id=order.trial_id,
        holder=holder,
        secret=secret_name(secret),
        argv=list(argv),
        env=order.env(),
        served_model=order.config.model.served_name,
        deadline_s=deadlines.engine_ready_s,
        lease_s=deadlines.lease_s,
        trial_deadline_s=order.trial_deadline_s,
        # The guard gives the node back by these.
        engine_stop_s=deadlines.engine_stop_s,
        production_ready_s=deadlines.production_ready_s,
    )
    try:
        _write(files.launch, protocol.as_json(request))
    except Trouble as trouble:
        raise PlanError(trouble.text) from trouble
    restores, keeps = order.restore_production, order.keep_lock
    write_finish(order, files, secret=secret, holder=holder, restore_production=restores, keep_lock=keeps)
    write_private(files.api_key, hmac.new(secret.encode(), order.trial_id.encode(), sha256).hexdigest() + "\n")
    write_private(files.job, _load_job(order, files, started_at_unix_s).model_dump_json())
    return files


def write_finish(
    order: TrialOrder, files: RequestFiles, *, secret: str, holder: str, restore_production: bool, keep_lock: bool
) -> None:
    """Write the request of the finish command, replacing an earlier one."""
    request = protocol.FinishRequest(
        trial_id=order.trial_id,
        holder=holder,
        secret=secret_name(secret),
        restore_production=restore_production,
        keep_lock=keep_lock,
        engine_stop_s=order.spec.deadlines.engine_stop_s,
        production_ready_s=order.spec.deadlines.production_ready_s,
    )
    _write(files.finish, protocol.as_json(request))


def load_runs(spec: SweepSpec, *, other_requests: bool = False) -> tuple[JobRun, ...]:
    """Every workload at each of its load levels, in order, as the load client takes them."""
    runs: list[JobRun] = []
    shift = _OTHER_REQUESTS if other_requests else 0
    for plan in spec.workloads:
        for level in plan.levels:
            # The same run of every config has the same seed, so that configs are compared on the same requests.
            assert not isinstance(plan.workload, ExternalWorkload), "a plan refuses what cannot be offered"
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
    single = not spec.objective.also and spec.objective.metric != "max_rate_per_s"
    return single and spec.search.strategy == "adaptive" and spec.search.stop_hopeless


def _bar(order: TrialOrder) -> Bar | None:
    if order.hopeless_beyond is None or not ends_early(order.spec):
        return None
    lower = objective_direction(order.spec) == "lower"
    return Bar(metric=order.spec.objective.metric, worst=order.hopeless_beyond, lower_is_better=lower)


def _load_job(order: TrialOrder, files: RequestFiles, started_at_unix_s: float) -> LoadJob:
    host, port = str(order.declaration["host"]), int(order.declaration["port"])
    base_url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return LoadJob(
        base_url=base_url,
        model=order.config.model.served_name,
        api_key_file=files.api_key,
        hosts=order.load_hosts,
        runs=load_runs(order.spec, other_requests=order.other_requests),
        trial_started_at_unix_s=started_at_unix_s,
        output_dir=files.output,
        progress_file=files.progress,
        metrics_url=f"{base_url}/metrics",
        run_deadline_s=order.spec.deadlines.run_s,
        bar=_bar(order),
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(content))


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone can read, replacing an earlier one."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
