"""What node, network, disk or controller did is never a config's failure: the trial is interrupted and made again."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from archive_factory import GPUS, node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer, StatusAnswer
from tokenpeak.node.protocol.parts import Phase, Production, RestoreOutcome
from tokenpeak.records import FAILURE_CAUSES, Failure, Reason, RunRecord, Verdict
from tokenpeak.search.history import Proposal
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.claim import holder_of
from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.sweep.resume import _given_back_meanwhile_s
from tokenpeak.sweep.trial.execution import _with_own_account
from tokenpeak.sweep.trial.record import TrialEvidence, failure_of
from tokenpeak.sweep.trial.request import TrialRequest

SPEC = sweep_spec()
FACTS = node_facts("gpu1", GPUS[0])
PLAN = plan_of(SPEC, FACTS)
READY = LaunchAnswer(ready=True, engine_version="0.32.0")
BACK = RestoreOutcome(restored=True, was_running=True, message="Production answers. It could not be written down.")
LIVED = FinishAnswer(engine_ran=True, restoration=BACK)
QUIET_END = FinishAnswer(engine_ran=False, exit_status=0, restoration=BACK)
CUT = Reason(code="network_outage", text="The network to the server was interrupted 1 time, for 9.0 s in all.")
RUNS = trial_record(SPEC, node=FACTS, planned=PLAN.feasible[0])[0].runs


def evidence(finish: FinishAnswer, **known: object) -> TrialEvidence:
    """A trial that ended so, on an engine that was ready."""
    request = TrialRequest(
        sweep_id="s",
        trial_id="0001-a",
        spec=SPEC,
        node=Node(name="gpu1", variables={}),
        facts=FACTS,
        hardware=FACTS.hardware,
        declaration={},
        planned=PLAN.feasible[0],
        proposal=Proposal(config_id=PLAN.feasible[0].config.config_id, replicate=0, reason=""),
        restore_production=True,
        keep_lock=True,
        trial_deadline_s=600,
    )
    made = TrialEvidence(request=request, started_at=datetime.now(UTC), started_boot_s=0.0, launch=READY, finish=finish)
    return replace(made, **known)  # type: ignore[arg-type]


def spoilt(run: RunRecord, *reasons: Reason, **summary: object) -> RunRecord:
    """A run that is invalid for these reasons."""
    verdict = Verdict(status="invalid", reasons=reasons)
    figures = {"requests_ok": 0, "requests_failed": 24, "requests_sent": 24, "failures": {}, **summary}
    return run.model_copy(update={"verdict": verdict, "summary": run.summary.model_copy(update=figures)})


def judged(found: Failure | None) -> tuple[str, bool] | None:
    """The cause, and whether the trial is made again."""
    return None if found is None else (found.cause, not FAILURE_CAUSES[found.cause].counts)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("OSError: [Errno 28] No space left on device: '/root/.cache/vllm'", ("interrupted", True)),
        (
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a: No space left on device",
            ("crashed", False),
        ),
        ("NCCL WARN Call to posix_fallocate failed : No space left on device", ("crashed", False)),
    ],
)
def test_full_shared_memory_is_no_full_disk(line: str, found: tuple[str, bool]) -> None:
    """The config's container has too little of it, and would have again; a disk that is full is the node's."""
    launch = LaunchAnswer(
        ready=False, failure_phase="starting", timed_out=False, message="It ended.", pid=4, exit_status=1
    )

    assert found == judged(failure_of(evidence(QUIET_END, launch=launch), (), f"INFO a\n{line}\n"))


def test_node_that_was_given_back_while_the_engine_started() -> None:
    """An engine that ended without a word under the guard's hands is no failed one; one that says why is."""
    finish = replace(QUIET_END, engine_ran=None, given_back_by="guard")
    launch = LaunchAnswer(
        ready=False, failure_phase="starting", timed_out=False, message="It ended.", pid=4, exit_status=0
    )
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22 GiB"

    assert ("interrupted", True) == judged(failure_of(evidence(finish, launch=launch), (), ""))
    assert ("out_of_memory", False) == judged(failure_of(evidence(finish, launch=launch), (), log))


@pytest.mark.parametrize("status", [0, -15, None])
def test_engine_that_was_asked_to_end(status: int | None) -> None:
    """An engine that ends politely and silently under load has been asked to: another launch shows what it is worth.

    None: somebody else ended it, and did not get to say so, as a guard whose production is not to be had.
    """
    found = failure_of(evidence(replace(QUIET_END, exit_status=status)), (), "INFO: Shutting down")

    assert ("stopped", False) == judged(found)
    assert FAILURE_CAUSES["stopped"].is_retryable


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 30] Read-only file system: '/root/.cache/vllm/x'",
        "OSError: [Errno 28] No space left on device",
        "safetensors_rust.SafetensorError: No space left on device (os error 28)",
    ],
)
def test_disk_that_ends_an_engine_under_load(line: str) -> None:
    """What a disk did to an engine that served is the disk's, whatever exception came of it."""
    found = failure_of(evidence(replace(QUIET_END, exit_status=1)), (), f"Traceback:\n{line}\n")

    assert ("interrupted", True) == judged(found)
    assert found is not None
    assert "disk" in found.message


def test_engine_that_the_node_could_not_start() -> None:
    """What refuses to start an engine is tried again; an engine that started and fell silent has failed."""
    refused = LaunchAnswer(
        ready=False, failure_phase="starting", timed_out=False, message="docker: Cannot connect to the Docker daemon."
    )
    silent = replace(refused, pid=4711, exit_status=3, message="The engine ended while it was starting.")

    assert ("engine_not_started", False) == judged(failure_of(evidence(LIVED, launch=refused), (), ""))
    assert FAILURE_CAUSES["engine_not_started"].is_retryable
    assert ("unknown", False) == judged(failure_of(evidence(LIVED, launch=silent), (), ""))


def test_path_of_the_load_is_cut() -> None:
    """The load's network path is cut while SSH lives: the trial says so, is made again, and is not refused."""
    runs = tuple(spoilt(run, CUT, failures={"stalled": 24}) for run in RUNS)

    found = failure_of(evidence(LIVED), runs, "INFO: Uvicorn running")

    assert ("network_outage", True) == judged(found)
    assert found is not None
    assert CUT.text in found.message
    assert "Look at the network" in found.message


def test_path_of_the_load_is_cut_from_the_start() -> None:
    """Requests of which none got to an engine that lived show a cut path too, though no probe was ever answered."""
    runs = tuple(spoilt(run, failures={"connect_timeout": 20, "connect_failed": 4}) for run in RUNS)

    assert ("network_outage", True) == judged(failure_of(evidence(LIVED), runs, ""))


def test_objective_that_a_cut_path_spoilt() -> None:
    """A launch whose run for the objective the network spoilt is made again; one whose other run it spoilt is not."""
    first = (RUNS[0].model_copy(update={"verdict": Verdict(status="invalid", reasons=(CUT,))}), *RUNS[1:])
    last = (*RUNS[:-1], RUNS[-1].model_copy(update={"verdict": Verdict(status="invalid", reasons=(CUT,))}))

    assert ("network_outage", True) == judged(failure_of(evidence(LIVED), first, ""))
    assert None is judged(failure_of(evidence(LIVED), last, ""))


def test_engine_that_failed_behind_a_cut_path() -> None:
    """What the engine's own log explains is the config's, whatever the network did besides."""
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22 GiB"
    ended = replace(QUIET_END, exit_status=1)

    assert ("out_of_memory", False) == judged(failure_of(evidence(ended), (spoilt(RUNS[0], CUT),), log))
    assert ("crashed", False) == judged(failure_of(evidence(replace(ended, exit_status=-9)), (), ""))


def test_engine_that_lived_and_did_not_serve() -> None:
    """Refusals are the config's; what nobody can explain is launched again; a client that failed is an outage."""
    stray = "ValueError: a request was odd\n"
    refused = (spoilt(RUNS[0], failures={"http_500": 24}),)
    stalled = (spoilt(RUNS[0], failures={"stalled": 24}),)

    assert ("refused", False) == judged(failure_of(evidence(LIVED), refused, ""))
    assert ("load_failed", False) == judged(failure_of(evidence(LIVED), stalled, ""))
    assert FAILURE_CAUSES["load_failed"].is_retryable
    assert ("crashed", False) == judged(failure_of(evidence(LIVED), stalled, stray))
    assert ("interrupted", True) == judged(failure_of(evidence(LIVED, failure="It was killed."), stalled, stray))


def test_outage_of_which_the_node_knows_nothing_more() -> None:
    """Another has the node, whose disk kept no outcome: production was down for as long as it was seen to be here."""
    stop = Phase(name="production_stop", kind="orchestration", started_s=1.0, duration_s=2.0)
    launch = replace(READY, phases=(stop,), production=Production(running=True, manager="systemd"))
    taken = replace(LIVED, given_back_by="another", restoration=RestoreOutcome(restored=True, was_running=False))
    lost = evidence(taken, launch=launch, spans={"launch": (100.0, 110.0)})

    seen = _with_own_account(lost, heard_at_unix_s=131.0).finish.restoration
    known = replace(taken, restoration=replace(BACK, downtime_s=17.0))

    assert seen is not None
    assert 30.0 == seen.downtime_s
    assert known == _with_own_account(replace(lost, finish=known), heard_at_unix_s=131.0).finish


def test_outage_before_anothers_is_found_by_a_resume(tmp_path: Path) -> None:
    """A resumed sweep counts what its lost trial cost, though another's trial has been given back since."""
    holder = holder_of(tmp_path.name) + "box (1), generation 1"
    own = RestoreOutcome(
        restored=True, was_running=True, downtime_s=21.5, trial_id="0003-a", holder=holder, at_unix_s=9.0
    )
    others = replace(own, holder="sweep other from box (2), generation 1", downtime_s=99.0, at_unix_s=12.0)
    answer = StatusAnswer(last_restoration=others, earlier_restorations=(own, replace(own, trial_id="0002-a")))

    assert {"gpu1": 21.5} == _given_back_meanwhile_s({"gpu1": answer}, Archive(tmp_path), {"0002-a"}, {})
