"""One trial from its order to its record: launch, load, finish in one Ansible run, whatever happens in between.

Measured on two cores with a local node, three playbook runs cost 5.3 s of Ansible and one run of the same three tasks
2.3 s; over SSH the difference grows. So a trial is one run of trial.yml, whose finish task always runs. When that run
is cut short (a signal, Ansible's death, a network that went), finish.yml is run by itself, then restore.yml; if neither
gets through, the node's guard gives production back once the lease has lapsed.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak.drive.inventory import Inventory
from tokenpeak.drive.order import RequestFiles, TrialOrder, write_finish, write_requests
from tokenpeak.drive.recording import Evidence, failed_before_launch, trial_record
from tokenpeak.drive.runner import Event, NodeResult, run_playbook
from tokenpeak.drive.stop import Stop
from tokenpeak.errors import NodeError, PlanError
from tokenpeak.names import inside
from tokenpeak.records import Provenance, Restoration, TrialRecord


@dataclass(frozen=True, kw_only=True)
class TrialSite:
    """What all trials of a sweep share on this controller. `folder` is private and outside the archive."""

    inventory: Inventory
    folder: Path
    secret: str
    holder: str
    provenance: Provenance
    stop: Stop


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial's record with the large files that belong to it."""

    record: TrialRecord
    requests_parquet: Path | None
    log_text: str
    node_trouble: str | None
    """What went wrong with the node itself rather than with the config; None when nothing did."""


def run_trial(
    order: TrialOrder, site: TrialSite, *, on_files: Callable[[RequestFiles], None], on_event: Callable[[Event], None]
) -> TrialResult:
    """Carry the trial out; returns in every case, with production as the order wants it or the reason why not."""
    evidence = Evidence(order=order, started_at=datetime.now(UTC), started_mono_s=time.monotonic())
    try:
        argv = order.argv()
    except PlanError as error:
        return TrialResult(
            record=failed_before_launch(evidence, str(error), site.provenance),
            requests_parquet=None,
            log_text="",
            node_trouble=None,
        )
    files = write_requests(
        order,
        inside(site.folder, order.trial_id),
        argv=argv,
        started_at_unix_s=evidence.started_at.timestamp(),
        secret=site.secret,
        holder=site.holder,
    )
    on_files(files)
    main = _play("trial.yml", order, site, files, _without_skipped_load(on_event), site.stop.gentle)
    evidence = replace(
        evidence,
        argv=tuple(argv),
        output=files.output,
        launch=main.answers.get("launch", {}),
        finish=main.answers.get("finish", {}),
        spans=dict(main.spans),
        failure=main.failure,
        unreachable=main.unreachable,
        cancelled=site.stop.gentle() and "finish" not in main.answers,
    )
    if "finish" not in main.answers:
        evidence = _give_back(evidence, site, files, on_event)
    record, log_text = trial_record(evidence, site.provenance)
    parquet = files.output / "requests.parquet"
    return TrialResult(
        record=record,
        requests_parquet=parquet if parquet.is_file() else None,
        log_text=log_text,
        node_trouble=_node_trouble(evidence, record),
    )


def _give_back(evidence: Evidence, site: TrialSite, files: RequestFiles, on_event: Callable[[Event], None]) -> Evidence:
    """Tear down a trial whose own finish did not answer: finish.yml, else restore.yml."""
    _end_client(files)
    write_finish(
        evidence.order, files, secret=site.secret, holder=site.holder, restore_production=True, keep_lock=False
    )
    again = _play("finish.yml", evidence.order, site, files, on_event, site.stop.abrupt)
    if answer := again.answers.get("finish"):
        return replace(evidence, finish=answer, spans={**evidence.spans, **again.spans})
    restored = _play("restore.yml", evidence.order, site, files, on_event, site.stop.let_go)
    answer = restored.answers.get("restore")
    reason = restored.unreachable or restored.failure or "restore.yml gave no answer"
    return replace(
        evidence,
        finish={"restoration": restoration_of(answer, reason).model_dump()},
        spans={**evidence.spans, **restored.spans},
    )


def _without_skipped_load(on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """`on_event`, less the start of a load that Ansible announces and then skips because the engine is not ready."""
    ready = False

    def hear(event: Event) -> None:
        nonlocal ready
        if event.task == "node | launch" and event.answer is not None:
            ready = bool(event.answer.get("ready"))
        if ready or event.task != "load | run":
            on_event(event)

    return hear


def _end_client(files: RequestFiles) -> None:
    """End the load client that a killed Ansible left behind: the process here that was started with this job's path.

    Without /proc nothing is ended, and the client's requests fail one by one once the engine has gone.
    """
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(files.job).encode() in command_line.read_bytes().split(b"\0"):
                os.kill(int(command_line.parent.name), signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def restoration_of(answer: Mapping[str, Any] | None, reason: str) -> Restoration:
    """How production stands by the node's own word; unrestored, for `reason`, when it gave none."""
    if answer is None:
        return Restoration(restored=False, was_running=True, message=reason)
    told = answer.get("restoration", answer)
    return Restoration.model_validate({key: told[key] for key in Restoration.model_fields if key in told})


def _play(
    playbook: str,
    order: TrialOrder,
    site: TrialSite,
    files: RequestFiles,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> NodeResult:
    """The playbook on the order's node; an Ansible that could not run is a failure of the node's."""
    if cancelled():
        return NodeResult(failure=f"{playbook} was not run: the sweep was told to end at once")
    try:
        done = run_playbook(
            playbook,
            site.inventory,
            nodes=[order.node.name],
            extravars={**files.extravars(), "tokenpeak_restore_holder": site.holder},
            on_event=on_event,
            cancelled=cancelled,
        )
    except NodeError as error:
        return NodeResult(failure=str(error))
    return done.nodes[order.node.name]


def _node_trouble(evidence: Evidence, record: TrialRecord) -> str | None:
    if evidence.unreachable:
        return f"{record.node} became unreachable: {evidence.unreachable}"
    if record.restoration is not None and not record.restoration.restored:
        return f"{record.node}: production is not back: {record.restoration.message}"
    if record.status == "interrupted" and not evidence.cancelled and record.failure is not None:
        return f"{record.node}: {record.failure.message}"
    return None
