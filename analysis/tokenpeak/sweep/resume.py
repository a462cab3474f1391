"""Resume of a sweep whose controller has gone: its claim, nodes that it still holds, downtime so far; whose it is.

What an archive plans is launched on the nodes, and vLLM loads code that its arguments name; where it measures a server,
the operator's key goes there. So an archive alone vouches for nothing: either `sweep.json` is, byte for byte, what this
controller has noted in its state folder, or the operator has the spec that such a sweep is begun with, and each config
follows from that and from the nodes as they are.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak import bounded, paths
from tokenpeak.errors import NodeError, PlanError, SpecError
from tokenpeak.files import write_atomically
from tokenpeak.metrics import PER_GPU
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.paths import inside
from tokenpeak.plan.baseline import baselines
from tokenpeak.plan.matrix import configs, kinds_of, on_node
from tokenpeak.records import Config, EndRecord, NodeFacts, SweepRecord, TrialRecord
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec
from tokenpeak.spec.workload import TraceWorkload
from tokenpeak.store.archive import TRAFFIC_FILE, Archive, parse_record
from tokenpeak.sweep.ansible.result import restored_by
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.claim import SweepClaim, holder_of, require_silence, take_over
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.production_traffic import relocated, replayed
from tokenpeak.sweep.progress import ProgressDisplay

_MOST_GENERATIONS = 1_000_000
"""A node that says more is not heard."""
_NAMED = 3
"""Of the configs that a spec does not have, so many are named."""


@contextmanager
def taken_over(
    archive: Path, spec: SweepSpec, inventory: Inventory, progress: ProgressDisplay, interrupt: Interrupt
) -> Iterator[tuple[SweepClaim, Mapping[str, StatusAnswer]]]:
    """The claim on a sweep whose controller has gone, and how its nodes stand.

    Raises FencedError where it lives, or another one resumes the sweep at this moment.
    """
    require_silence(archive, interrupt, progress.say)
    answers = _node_status(inventory, interrupt) if spec.endpoint is None else {}
    claim = take_over(archive, interrupt, above=_highest_generation(answers, archive.name))
    with claim.kept():
        yield claim, answers


def _node_status(inventory: Inventory, interrupt: Interrupt) -> dict[str, StatusAnswer]:
    """How each node stands that answers."""
    done = run_playbook("status.yml", inventory, cancelled=interrupt.gentle)
    answers = {name: result.answer(StatusAnswer) for name, result in done.nodes.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _highest_generation(answers: Mapping[str, StatusAnswer], sweep_id: str) -> int:
    """The highest generation of the sweep that a node knows; the archive may be a copy that knows a lower one."""
    known = ((answer.generations or {}).get(sweep_id) for answer in answers.values())
    return max((each for each in known if isinstance(each, int) and each < _MOST_GENERATIONS), default=0)


def give_back(
    inventory: Inventory,
    archive: Archive,
    trials: Sequence[TrialRecord],
    answers: Mapping[str, StatusAnswer],
    claim: SweepClaim,
    progress: ProgressDisplay,
    interrupt: Interrupt,
) -> None:
    """Give back the nodes that this sweep still holds from when its controller died, and note what that time cost.

    Every node that answers learns the generation of `claim`, so that it refuses the controllers before. Raises
    FencedError where a node knows a newer one.
    """
    held = [name for name, answer in answers.items() if (answer.holder or "").startswith(holder_of(claim.sweep_id))]
    open_s = open_before_s(archive, trials)
    counted = _counted(archive, trials, open_s)
    over_s = _given_back_meanwhile_s(answers, archive, counted, open_s)
    if held:
        progress.say(f"Giving back {', '.join(held)}, held since this sweep was cut off")
    if answers:
        given = run_playbook(
            "restore.yml",
            inventory,
            nodes=list(answers),
            extravars={"tokenpeak_restore_holder": claim.holder, "tokenpeak_claim": claim.on_node},
            cancelled=interrupt.abrupt,
        )
        for reason in filter(None, (result.fenced for result in given.nodes.values())):
            claim.lose(reason)
        claim.require()
        for name in held:
            outcome = restored_by(given.nodes[name], answers[name].holder or "", answers[name].trial_id)
            # On a disk that refuses writes, a node keeps the record of a trial whose outage is over and counted.
            if outcome.restored and outcome.downtime_s is not None and outcome.trial_id not in counted:
                over_s[name] = over_s.get(name, 0.0) + outcome.downtime_s
    if not over_s:
        return
    # What was known of an outage gives way to the whole of it.
    downtime_s = downtime_before_s(archive, trials)
    for name, seconds in over_s.items():
        downtime_s[name] = downtime_s.get(name, 0.0) - open_s.pop(name, 0.0) + seconds
    archive.write_end(
        EndRecord(
            sweep_id=archive.path.name,
            status="interrupted",
            ended_at=datetime.now(UTC),
            trials=len(trials),
            production_downtime_s=downtime_s,
            open_downtime_s=open_s,
            problems=("Its controller died; production was given back by the node's guard, or when it was resumed.",),
        )
    )


def _counted(archive: Archive, trials: Sequence[TrialRecord], open_s: Mapping[str, float]) -> frozenset[str]:
    """The trials whose outage is recorded to its end: by themselves, or by an end record that leaves none open."""
    before = archive.read_end()
    ended = [trial for trial in trials[: before.trials if before else 0] if trial.node not in open_s]
    return frozenset(
        [trial.trial_id for trial in trials if trial.restoration is not None and trial.restoration.restored]
        + [trial.trial_id for trial in ended if trial.restoration is not None]
    )


def _given_back_meanwhile_s(
    answers: Mapping[str, StatusAnswer],
    archive: Archive,
    counted: Collection[str],
    open_s: Mapping[str, float],
) -> dict[str, float]:
    """How long production was down for a trial of which nobody recorded the end, where the node was given back."""
    before = archive.read_end()
    since_unix_s = before.ended_at.timestamp() if before else 0.0
    ours = holder_of(archive.path.name)
    down_s = {}
    for name, answer in answers.items():
        known = (answer.last_restoration, *answer.earlier_restorations)
        own = [each for each in known if each is not None and (each.holder or "").startswith(ours) and each.restored]
        lost = list({each.trial_id: each for each in reversed(own) if each.trial_id not in counted}.values())
        # The end of an outage that was open is the newest, whatever the two machines' clocks say.
        new = [each for each in lost[:-1] if (each.at_unix_s or 0.0) > since_unix_s]
        new += [each for each in lost[-1:] if name in open_s or (each.at_unix_s or 0.0) > since_unix_s]
        if new:
            down_s[name] = sum(each.downtime_s or 0.0 for each in new)
    return down_s


def downtime_before_s(archive: Archive, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """What production was down on each node so far: by the last end record, and by the trials that came after it.

    An outage that a trial did not see end has its true length in the end record alone.
    """
    before = archive.read_end()
    total_s = dict(before.production_downtime_s) if before else {}
    for trial in trials[before.trials if before else 0 :]:
        if trial.restoration is not None:
            total_s[trial.node] = total_s.get(trial.node, 0.0) + (trial.restoration.downtime_s or 0.0)
    return total_s


def open_before_s(archive: Archive, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The part of it that belongs to outages that were not seen to end."""
    before = archive.read_end()
    if before is not None:
        return dict(before.open_downtime_s)
    last = {trial.node: trial.restoration for trial in trials if trial.restoration is not None}
    return {node: outcome.downtime_s or 0.0 for node, outcome in last.items() if not outcome.restored}


def unchanged(usable: Mapping[str, ReadyNode], record: SweepRecord, progress: ProgressDisplay) -> dict[str, ReadyNode]:
    """The nodes that are still the hardware they were planned as; raises NodeError when none is."""
    planned = {node.node: node for node in record.nodes}
    same = {}
    for name, ready in usable.items():
        if ready.facts.is_still(planned[name]):
            same[name] = ready
        else:
            progress.say(
                f"PROBLEM {name} was planned as {record.hardware_of(planned[name])} and is now another kind "
                f"({ready.facts.hardware}); it is excluded."
            )
    if not same:
        raise NodeError(f"No node of sweep {record.sweep_id} is what it was; start a new sweep.")
    return same


def opened(archive: Path) -> tuple[SweepRecord, SweepSpec, str]:
    """What the sweep of an archive set out to do, and the digest of the file that says so, read once."""
    path = archive / "sweep.json"
    data = bounded.read_bytes(path)
    record = parse_record(data, SweepRecord, path)
    return record, relocated(parse_spec(record.spec, path), archive), hashlib.sha256(data).hexdigest()


def note(archive: Path, digest: str | None = None) -> None:
    """Note that the sweep of this archive is this controller's, as it is planned there or as `digest` says."""
    path = _note(archive.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, digest or opened(archive)[2], mode=0o600)


def is_noted(archive: Path, digest: str) -> bool:
    """Whether this controller has noted the sweep with this very plan."""
    path = _note(archive.name)
    return path.is_file() and path.read_text() == digest


def own_spec_of(sweep_id: str, recorded: SweepSpec, name: str) -> SweepSpec:
    """The operator's own spec called `name`; SpecError unless the recorded one is what planning makes of it."""
    why = f"{sweep_id} was not begun by this controller, so what it launches or asks could be anybody's choice"
    again = f"name the spec that it was begun with: tokenpeak sweep --resume {sweep_id} --sweep FILE"
    try:
        own = read_spec(name)
    except SpecError as error:
        raise SpecError(f"{why}. It goes on only by a spec of your own. {error} Or {again}") from error
    if changed := [key for key, value in _settled(own, recorded).items() if value != recorded.model_dump()[key]]:
        raise SpecError(
            f"{why}. It is not word for word the one of your own spec {name}: {', '.join(changed)}. Put the spec back "
            f"as it was, start a new sweep, or {again}"
        )
    return own


def require_planned(sweep_id: str, record: SweepRecord, own: SweepSpec, nodes: Iterable[NodeFacts]) -> None:
    """SpecError unless each config that the archive plans for these nodes follows from the operator's own spec."""
    there = list(nodes)
    names = {facts.node for facts in there}
    known = {config.model_dump_json() for config in _configs(own, there)}
    planned = [each.config for plan in record.plans if names & {*plan.nodes} for each in plan.feasible]
    if foreign := [config for config in planned if config.model_dump_json() not in known]:
        named = ", ".join(config.name for config in foreign[:_NAMED])
        raise SpecError(
            f"{sweep_id} was not begun by this controller, and {len(foreign)} of the {len(planned)} configs that it "
            f"plans are none of your spec's on these nodes ({named}). No such config is launched: resume it on the "
            f"machine that began it, or start a new sweep."
        )


def _settled(own: SweepSpec, recorded: SweepSpec) -> dict[str, Any]:
    """The operator's spec with what a sweep may have settled as it is recorded: metric per GPU, baselines, traffic."""
    settled = replayed(own, *_traffic(recorded)).model_dump()
    if recorded.objective.metric == PER_GPU.get(own.objective.metric):
        settled["objective"]["metric"] = recorded.objective.metric
    count = len(own.search.baseline)
    if recorded.search.baseline[:count] == own.search.baseline:
        settled["search"]["baseline"] = recorded.search.baseline
    return settled


def _traffic(recorded: SweepSpec) -> tuple[str, float | None]:
    """The trace that stands for workloads from production, and its share of prefix hits."""
    workloads = (plan.workload for plan in recorded.workloads)
    traces = (each for each in workloads if isinstance(each, TraceWorkload) and Path(each.path).name == TRAFFIC_FILE)
    return next(((each.path, each.expected_prefix_hit_rate) for each in traces), ("", None))


def _configs(spec: SweepSpec, nodes: list[NodeFacts]) -> Iterator[Config]:
    """Every config that the spec may have launched on nodes as these are, baselines of each node's own included."""
    for same in kinds_of(spec, nodes).values():
        own = [extra for node in same for extra in baselines(spec, [node])[0]]
        extras = [extra for number, extra in enumerate(own) if extra not in own[:number]]
        whole = spec.model_copy(update={"extra_configs": (*spec.extra_configs, *extras)})
        for config in configs(whole, same[0].model):
            with suppress(PlanError):
                yield on_node(config, same[0])


def _note(sweep_id: str) -> Path:
    return inside(paths.state_dir() / "own-sweeps", sweep_id)
