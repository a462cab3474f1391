"""Commands of the node script, and the requests of a controller to them.

A request is one JSON object. All of it is checked before anything on the node is touched: a field that is missing,
unknown, of another type or out of range is an error that names it, and so is a word that no word may be (`words`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TypeVar

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.protocol import answers, field
from tokenpeak.node.protocol.field import bound, needed

HEARTBEAT_BYTES = 1 << 14
LEASE_MAX_S = 600.0
TRIAL_DEADLINE_MAX_S = 86_400.0
IDLE_MAX_S = 30.0
"""No declaration allows more."""
ENGINE_STOP_S = 60.0
PRODUCTION_READY_S = 900.0
OBSERVE_MAX_S = 7200.0
CONCURRENCY_MAX = 64
_WRONG_NAMED = 10

_name = field.optional(field.name)
_claim = field.optional(field.entries(sweep_id=field.name, generation=field.integer(1, (1 << 31) - 1)))
_served = field.optional(field.entries(running=field.flag, model=_name))
_settle_s = field.number(0, field.SECONDS_MAX, "0 or a number of seconds")
_edit = field.entries(words=field.edited, env=field.edited_environment, image=field.optional(field.name))
_idle_s = field.number(0, IDLE_MAX_S, f"0 to {IDLE_MAX_S:g} s")
NOTIFY = "notify"
"""One more word, for which the script sends a notification and answers nothing."""


@dataclass(frozen=True)
class NodeRequest:
    """A request of a controller to a node."""


@dataclass(frozen=True)
class PutRequest(NodeRequest):
    """Put the node's declaration and its controller's secret into the state folder, beside the script that runs."""

    declaration: Json = dataclasses.field(metadata=needed(field.tree))
    secret: str | None = bound(field.optional(field.secret_name))
    """The secret's name."""
    secret_value: str | None = bound(_name, shown=False)


@dataclass(frozen=True)
class LaunchRequest(NodeRequest):
    """Borrow the node for a trial and start its engine.

    `deadline_s` is how long the engine may take to its first completion; after `lease_s` without a sign of the
    controller, and after `trial_deadline_s` in any case, the node gives itself back.
    """

    trial_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))
    argv: list[str] = dataclasses.field(metadata=needed(field.arguments))
    env: dict[str, str] = dataclasses.field(metadata=needed(field.request_variables))
    served_model: str = dataclasses.field(metadata=needed(field.name))
    deadline_s: float = dataclasses.field(metadata=needed(field.time_s))
    lease_s: float = dataclasses.field(metadata=needed(field.time_s))
    trial_deadline_s: float = dataclasses.field(metadata=needed(field.time_s))
    engine_stop_s: float = bound(field.time_s, ENGINE_STOP_S)
    production_ready_s: float = bound(field.time_s, PRODUCTION_READY_S)
    secret: str | None = bound(field.optional(field.secret_name))
    key_nonce: str | None = bound(field.optional(field.key_nonce))
    """With the node's secret and the holder, what the trial's API key follows from."""
    engine: str | None = bound(_name)
    """The name of the declared engine build that `argv` starts; None: the default one."""
    engine_version: str | None = bound(_name)
    """The version that this engine is to report; None: any."""
    engine_digest: str | None = bound(_name)
    """What this engine is started from, as the probe found it; None: whatever is there."""
    model: str | None = bound(field.optional(field.model_name))
    """What it is to serve: a folder, or a name of the hub; None: the declared one."""
    script: str | None = bound(_name)
    """The digest of the controller's own node script: one of another version is refused before this is parsed."""
    production_at_start: Json | None = bound(_served)
    """Whether production ran when the sweep began, and its model: only then the node brings back what it saw itself."""
    idle_s: float = bound(_idle_s, 0.0)
    """How long the node is left idle, with its sampler running, before the engine starts."""
    claim: Json | None = bound(_claim)
    """The sweep and the generation of its controller: a newer one's node refuses this."""


@dataclass(frozen=True)
class FinishRequest(NodeRequest):
    """End a trial and give the node back. `keep_lock` leaves it to the sweep."""

    trial_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))
    restore_production: bool = bound(field.flag, default=True)
    keep_lock: bool = bound(field.flag, default=False)
    engine_stop_s: float = bound(field.time_s, ENGINE_STOP_S)
    production_ready_s: float = bound(field.time_s, PRODUCTION_READY_S)
    claim: Json | None = bound(_claim)


@dataclass(frozen=True)
class RestoreRequest(NodeRequest):
    """Give the node back now: from this holder only, or from whoever has it."""

    holder: str | None = bound(_name)
    production_at_start: Json | None = bound(_served)
    claim: Json | None = bound(_claim)
    accept: bool = bound(field.flag, default=False)
    """Whatever model production serves now is the right one."""
    release: bool = bound(field.flag, default=False)
    """Sweeps may have the node again: nothing is held, and what was held is not any more."""


@dataclass(frozen=True)
class UninstallRequest(NodeRequest):
    """Take TokenPeak off the node; with `produced`, its demonstration production too."""

    produced: bool = bound(field.flag, default=False)


@dataclass(frozen=True)
class ObserveRequest(NodeRequest):
    """Read production's metrics for `seconds`, every `period_s`, after `settle_s`; with a test load of so many.

    With `traffic` the counts are read that show what is asked of production, rather than how it answers.
    """

    seconds: float = dataclasses.field(metadata=needed(field.time_s))
    period_s: float = dataclasses.field(metadata=needed(field.time_s))
    settle_s: float = bound(_settle_s, 0.0)
    concurrency: int = bound(field.integer(0, CONCURRENCY_MAX), 0)
    traffic: bool = bound(field.flag, False)


@dataclass(frozen=True)
class ChangeRequest(NodeRequest):
    """Change production's definition, and put it back unless a confirmation comes within `confirm_within_s`.

    `edit` is {words, env, image}: each word is a new one, or the number of the word of the present command that stays;
    which of them are the program, the node says itself. Without it, the last confirmed apply is undone. `was_sha256` is
    the definition that was shown.
    """

    apply_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))
    was_sha256: str = dataclasses.field(metadata=needed(field.sha256))
    lease_s: float = dataclasses.field(metadata=needed(field.time_s))
    confirm_within_s: float = dataclasses.field(metadata=needed(field.time_s))
    edit: Json | None = bound(field.optional(_edit))
    engine_version: str | None = bound(field.optional(field.name))
    """The version that production is to report afterwards; None: any."""
    production_ready_s: float = bound(field.time_s, PRODUCTION_READY_S)
    script: str | None = bound(field.optional(field.name))


@dataclass(frozen=True)
class ConfirmRequest(NodeRequest):
    """Make the changed definition production's own."""

    apply_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))


@dataclass(frozen=True)
class HeartbeatRequest(NodeRequest):
    """A line on the lease's channel: its holder is alive. The answer has the same number."""

    number: int = dataclasses.field(metadata=needed(field.integer(0)))
    holder: str = dataclasses.field(metadata=needed(field.name))
    claim: Json | None = bound(_claim)


Request = TypeVar("Request", bound=NodeRequest)


def sweep_of(claim: Json | None) -> str | None:
    """The sweep that a claim is on; None without one."""
    return None if claim is None else str(claim["sweep_id"])


def parse(kind: type[Request], given: Json) -> Request:
    """The request, every field of it checked; raises ScriptError that names each field that is wrong."""
    values, unusable = field.usable(kind, given)
    wrong = [f"{shown_value(each)} is unknown" for each in given if each not in field.checks(kind)]
    wrong += [f"{each} {reason}" for each, reason in unusable.items()]
    wrong += [f"{one.name} is missing" for one in fields(kind) if one.name not in given and one.default is MISSING]
    if wrong:
        command = kind.__name__.replace("Request", "").lower()
        reasons = "; ".join(wrong[:_WRONG_NAMED])
        raise ScriptError("request", f"The {command} request is refused, and nothing was touched: {reasons}.")
    return kind(**values)


def as_json(request: NodeRequest) -> Json:
    """The request as it is sent; what a node would refuse raises ScriptError here."""
    given = asdict(request)
    parse(type(request), given)
    return given


def limits(declaration: Json) -> dict[str, float]:
    """The longest lease and the latest deadline of a trial that the node's declaration allows, in seconds."""
    declared = declaration.get("limits") or {}
    return {
        "lease_max_s": float(declared.get("lease_max_s") or LEASE_MAX_S),
        "trial_deadline_max_s": float(declared.get("trial_deadline_max_s") or TRIAL_DEADLINE_MAX_S),
    }


def too_long(declaration: Json, lease_s: float, trial_s: float) -> list[str]:
    """The times of a trial that a node would refuse, each with the key of the inventory that bounds it.

    `trial_s` is all of it: the trial's deadline, the end of its engine and the return of production.
    """
    most = limits(declaration)
    wrong = []
    if lease_s > most["lease_max_s"]:
        wrong.append(f"lease_s is {lease_s:g} s and tokenpeak_lease_max_s of the inventory {most['lease_max_s']:g}")
    if trial_s > most["trial_deadline_max_s"]:
        wrong.append(
            f"production may be down for {trial_s:g} s by its deadlines and tokenpeak_trial_deadline_max_s of the "
            f"inventory is {most['trial_deadline_max_s']:g}"
        )
    return wrong


def require_within_limits(declaration: Json, command: str, lease_s: float, trial_s: float) -> None:
    """Raise ScriptError for times of a request that the node's own declaration does not allow."""
    refuse(command, too_long(declaration, lease_s, trial_s))


def refuse(command: str, wrong: list[str]) -> None:
    """Raise ScriptError for a request that the node does not allow, where something is wrong with it."""
    if wrong:
        raise ScriptError("refused", f"The {command} request is refused, and nothing was touched: {'; '.join(wrong)}.")


@dataclass(frozen=True)
class NodeCommand:
    """A word that the node script takes."""

    answer: type[answers.NodeAnswer]
    request: type[NodeRequest] | None = None
    may_lack_request: bool = False
    """Root may run it without one."""
    is_for_trials: bool = False
    """Root's command of trials takes it."""
    is_for_applies: bool = False
    """Root's command of applies takes it."""
    needs_declaration: bool = True
    """It needs the node's declaration to be readable. What gives the node back needs the record alone, and must not
    fail for what somebody did to another file; `put` replaces that file."""


COMMANDS: dict[str, NodeCommand] = {
    "put": NodeCommand(answers.PutAnswer, PutRequest, needs_declaration=False),
    "install": NodeCommand(answers.InstallAnswer),
    "probe": NodeCommand(answers.ProbeAnswer, is_for_trials=True, is_for_applies=True),
    "launch": NodeCommand(answers.LaunchAnswer, LaunchRequest, is_for_trials=True),
    "finish": NodeCommand(answers.FinishAnswer, FinishRequest, is_for_trials=True),
    "restore": NodeCommand(
        answers.RestoreAnswer,
        RestoreRequest,
        may_lack_request=True,
        is_for_trials=True,
        is_for_applies=True,
        needs_declaration=False,
    ),
    "status": NodeCommand(answers.StatusAnswer, is_for_trials=True, is_for_applies=True),
    "lease": NodeCommand(answers.LeaseAnswer, is_for_trials=True, is_for_applies=True, needs_declaration=False),
    "guard": NodeCommand(answers.GuardAnswer, needs_declaration=False),
    "telemetry": NodeCommand(answers.TelemetryAnswer, needs_declaration=False),
    "produce": NodeCommand(answers.ProduceAnswer),
    "uninstall": NodeCommand(answers.UninstallAnswer, UninstallRequest, may_lack_request=True),
    "describe": NodeCommand(answers.DescribeAnswer, is_for_applies=True),
    "observe": NodeCommand(answers.ObserveAnswer, ObserveRequest, is_for_trials=True, is_for_applies=True),
    "change": NodeCommand(answers.ChangeAnswer, ChangeRequest, is_for_applies=True),
    "confirm": NodeCommand(answers.ConfirmAnswer, ConfirmRequest, is_for_applies=True),
}
