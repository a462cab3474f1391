"""Answers of the node script, one JSON object for each command: built on the node and parsed by the controller.

A node is not trusted: what it sends is shown and recorded, and must neither fill the controller's memory nor end a
sweep in a traceback. A field that is missing, unknown, of another type or out of bounds is left out, and `unusable`
names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, TypeVar

from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import one_line, shown_value
from tokenpeak.node.protocol import field, parts
from tokenpeak.node.protocol.field import bound
from tokenpeak.node.protocol.parts import (
    FoundEngine,
    FoundServer,
    Gpu,
    InstalledEngine,
    MachineFacts,
    Overlap,
    Phase,
    PhaseName,
    Production,
    RestoreOutcome,
    Series,
)

_UNKNOWN_NAMED = 5
_status = field.optional(field.integer(-(1 << 31), (1 << 31) - 1))


@dataclass(frozen=True)
class CommandFailure:
    """Why a command could not do its work."""

    code: str
    text: str


@dataclass(frozen=True)
class NodeAnswer:
    """An answer of a node, with what all have beside their own fields."""

    script: str | None = bound(parts.word)
    """Digest of the node script that answered; null where the package itself runs."""
    error: CommandFailure | None = None
    """Sent alone, in place of the other fields."""
    unusable: tuple[str, ...] = ()
    """Which fields cannot be used, and why; never sent."""


AnyAnswer = TypeVar("AnyAnswer", bound=NodeAnswer)


@dataclass(frozen=True)
class PutAnswer(NodeAnswer):
    """Script, declaration and secret are in the state folder; `changed` where one of them was not."""

    changed: bool | None = bound(field.flag)


@dataclass(frozen=True)
class InstallAnswer(NodeAnswer):
    """The guard is in place."""

    guard: str | None = bound(field.one_of("systemd", "watchdog"))
    changed: bool | None = bound(field.flag)


@dataclass(frozen=True)
class ProbeAnswer(MachineFacts, NodeAnswer):
    """Facts of the node, and its declaration without what may be secret."""

    probed_at: str | None = bound(field.word)
    engines: tuple[InstalledEngine, ...] = bound(field.several(field.structure(InstalledEngine), 100), ())
    engine_env_allowed: tuple[str, ...] = bound(parts.sentences, ())
    declaration: Json | None = bound(field.mapping)


@dataclass(frozen=True)
class LaunchAnswer(NodeAnswer):
    """How the engine came up, or how far it came."""

    ready: bool | None = bound(field.flag)
    failure_phase: str | None = bound(parts.word)
    timed_out: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    exit_status: int | None = bound(_status)
    log_tail: str | None = bound(parts.any_text)
    engine_version: str | None = bound(parts.word)
    """What the engine itself reported; null where it was not ready, or reports none."""
    engine_digest: str | None = bound(parts.word)
    """`sha256:…` of the image or the command's file that was started."""
    model_digest: str | None = bound(parts.word)
    """`sha256:…` of the model's files; null where they were not found."""
    pid: int | None = bound(field.optional(field.integer()))
    host: str | None = bound(field.word)
    port: int | None = bound(field.integer())
    api_key_used: bool | None = bound(field.flag)
    phases: tuple[Phase, ...] = bound(parts.phases, ())
    started_at_unix_s: float | None = bound(parts.instant_s)
    production_found_down: bool | None = bound(field.flag)
    """Production had ended by itself since the sweep began."""
    production: Production | None = bound(field.optional(field.structure(Production)))


@dataclass(frozen=True)
class FinishAnswer(NodeAnswer):
    """What a trial left on the node, and how production stands; `restoration` is null where it was not asked for."""

    phases: tuple[Phase, ...] = bound(parts.phases, ())
    started_at_unix_s: float | None = bound(parts.instant_s)
    engine_ran: bool | None = bound(field.optional(field.flag))
    exit_status: int | None = bound(_status)
    engine_stopped: bool | None = bound(field.flag)
    restoration: RestoreOutcome | None = bound(field.optional(field.structure(RestoreOutcome)))
    given_back_by: str | None = bound(parts.word)
    """Whoever ended the trial before: `guard`, `restore`, or `another` where a trial of someone else is there."""
    production_overlap_unix_s: float | None = bound(parts.seconds)
    telemetry: Series = bound(parts.series, Series())
    log: str | None = bound(field.text(1 << 62))
    """The engine's log: base64 of zlib of UTF-8."""


@dataclass(frozen=True)
class RestoreAnswer(NodeAnswer):
    """How production stands, and how the restoration before this one ended."""

    phases: tuple[Phase, ...] = bound(parts.phases, ())
    restoration: RestoreOutcome | None = bound(field.structure(RestoreOutcome))
    last_restoration: RestoreOutcome | None = bound(field.optional(field.structure(RestoreOutcome)))


@dataclass(frozen=True)
class StatusAnswer(NodeAnswer):
    """What the node serves, which trial has it, and whether a guard watches."""

    production: Production | None = bound(field.optional(field.structure(Production)))
    problem: str | None = bound(parts.sentence)
    engine: Json | None = bound(field.optional(field.mapping))
    armed: bool | None = bound(field.flag)
    """A trial has the node."""
    guard_alive: bool | None = bound(field.flag)
    lease_remaining_s: float | None = bound(parts.seconds)
    holder: str | None = bound(parts.word)
    trial_id: str | None = bound(parts.word)
    drained: tuple[str, ...] = bound(parts.sentences, ())
    """What of the node is out of its load balancer."""
    secret: str | None = bound(parts.word)
    generations: Json | None = bound(field.mapping)
    """The highest generation of each resumed sweep's controllers that was here."""
    phase: PhaseName | None = bound(field.optional(parts.phase_name))
    held_since_unix_s: float | None = bound(parts.seconds)
    """When a person gave the node back from a sweep; no trial begins there until a person releases it."""
    last_restoration: RestoreOutcome | None = bound(field.optional(field.structure(RestoreOutcome)))
    earlier_restorations: tuple[RestoreOutcome, ...] = bound(field.several(field.structure(RestoreOutcome), 100), ())
    """Of other trials, the last one first."""


@dataclass(frozen=True)
class HeardAnswer(NodeAnswer):
    """A line of the lease: the number of the heartbeat that it answers."""

    heard: int | None = bound(field.integer(0))


@dataclass(frozen=True)
class OverlapAnswer(NodeAnswer):
    """A line of the lease: production was started by somebody during the trial."""

    overlap: Overlap | None = bound(field.structure(Overlap))


@dataclass(frozen=True)
class LeaseAnswer(NodeAnswer):
    """The end of a lease: how many heartbeats renewed it."""

    renewals: int | None = bound(field.integer(0))


@dataclass(frozen=True)
class GuardAnswer(NodeAnswer):
    """The end of a watch: whether there was a record to watch."""

    watched: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)


@dataclass(frozen=True)
class TelemetryAnswer(NodeAnswer):
    """The end of the sampler."""

    message: str | None = bound(parts.sentence)


@dataclass(frozen=True)
class ProduceAnswer(NodeAnswer):
    """What became of the inventory's own production; `ready` is null where nothing was started."""

    changed: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    ready: bool | None = bound(field.optional(field.flag))


@dataclass(frozen=True)
class UninstallAnswer(NodeAnswer):
    """TokenPeak is gone from the node, but for what `left` names."""

    removed: bool | None = bound(field.flag)
    left: tuple[str, ...] = bound(parts.sentences, ())


def as_json(answer: NodeAnswer) -> Json:
    """The answer's own fields as they are sent; `json.dumps` takes them with `default=vars`."""
    return {name: getattr(answer, name) for name in field.checks(type(answer)) if name != "script"}


def parse(kind: type[AnyAnswer], given: Json) -> AnyAnswer:
    """The answer with all of it that can be used; `unusable` names the rest."""
    values, wrong = field.usable(kind, given)
    error = given.get("error")
    if isinstance(error, dict):
        refusal = CommandFailure(
            one_line(str(error.get("code"))[: field.WORD]), one_line(str(error.get("text") or error)[: field.TEXT])
        )
        return kind(script=values.get("script"), error=refusal)
    # What cannot be used is not repeated: it may hold anything.
    left_out = [f"{name} makes no sense" for name in wrong]
    left_out += [f"{name} is missing" for name in field.checks(kind) if name not in given]
    return replace(kind(**values), unusable=(*sorted(left_out), *_unknown(kind, given)))


def _unknown(kind: type[Any], given: Json) -> Iterator[str]:
    unknown = sorted(given.keys() - field.checks(kind).keys())
    yield from (f"{shown_value(name)} is unknown" for name in unknown[:_UNKNOWN_NAMED])
    if len(unknown) > _UNKNOWN_NAMED:
        yield f"{len(unknown) - _UNKNOWN_NAMED} more are unknown"


@dataclass(frozen=True)
class AppliedState:
    """The last apply that was confirmed on the node; texts are definitions as they are shown."""

    apply_id: str = bound(field.word)
    holder: str = bound(field.word)
    at_unix_s: float | None = bound(parts.seconds)
    was_sha256: str = bound(field.word)
    new_sha256: str = bound(field.word)
    was_text: str = bound(field.text())
    new_text: str = bound(field.text())


@dataclass(frozen=True)
class DescribeAnswer(NodeAnswer):
    """Production's definition as it is; what may be secret in it is hidden, and every word is in its place."""

    production: Production | None = bound(field.optional(field.structure(Production)))
    problem: str | None = bound(parts.sentence)
    """Why an apply is not possible here."""
    place: str | None = bound(parts.sentence)
    words: tuple[str, ...] = bound(parts.texts, ())
    program: int | None = bound(field.optional(field.integer(0)))
    """How many of the words are the program."""
    env: Mapping[str, str] | None = bound(field.optional(field.variables))
    image: str | None = bound(parts.sentence)
    text: str | None = bound(parts.any_text)
    sha256: str | None = bound(parts.word)
    engine_version: str | None = bound(parts.word)
    """That production itself reports."""
    max_model_len: int | None = bound(field.optional(field.integer(0)))
    """The longest context that it serves, as it says itself."""
    test_load: bool | None = bound(field.flag)
    """The inventory allows a test load."""
    applied: AppliedState | None = bound(field.optional(field.structure(AppliedState)))
    unconfirmed: str | None = bound(parts.word)
    """The apply that has the node and waits to be confirmed."""


@dataclass(frozen=True)
class ObserveAnswer(NodeAnswer):
    """Production's own metrics over a while: cumulative counts, a column each (`bake` reads them)."""

    readings: Series = bound(parts.series, Series())
    histograms: Series = bound(parts.series, Series())
    """Of traffic: buckets at the first and at the last reading."""
    ended: str | None = bound(parts.sentence)
    """Why the readings end early: production ended, or does not answer any more."""
    load_sent: int | None = bound(field.integer(0))
    load_failed: int | None = bound(field.integer(0))
    load_failure: str | None = bound(parts.sentence)
    """What the first failed request of the test load came to."""


@dataclass(frozen=True)
class ChangeAnswer(NodeAnswer):
    """Production with another definition, unconfirmed; or why not, and how production stands."""

    changed: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    failed_in: str | None = bound(parts.word)
    """The phase in which it failed."""
    phases: tuple[Phase, ...] = bound(parts.phases, ())
    started_at_unix_s: float | None = bound(parts.seconds)
    was_sha256: str | None = bound(parts.word)
    new_sha256: str | None = bound(parts.word)
    was_text: str | None = bound(parts.any_text)
    new_text: str | None = bound(parts.any_text)
    engine_version: str | None = bound(parts.word)
    downtime_s: float | None = bound(parts.seconds)
    """From production's stop to its first real answer."""
    restoration: RestoreOutcome | None = bound(field.optional(field.structure(RestoreOutcome)))


@dataclass(frozen=True)
class ConfirmAnswer(NodeAnswer):
    """The changed definition is production's own from now on; or why not."""

    confirmed: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    sha256: str | None = bound(parts.word)
    phases: tuple[Phase, ...] = bound(parts.phases, ())


@dataclass(frozen=True)
class SurveyAnswer(NodeAnswer):
    """A machine as it is: its boards, who asked, what serves at the port that was asked about, and engines."""

    user: str = bound(field.word)
    """Who logged in."""
    is_root: bool = bound(field.flag, default=False)
    """That user is root, or became it by sudo without a password."""
    home: str = bound(field.text(), "/")
    python: str = bound(field.text(), "/usr/bin/python3")
    gpus: tuple[Gpu, ...] = bound(field.several(field.structure(Gpu), 1000), ())
    url: str = bound(field.word, "http://127.0.0.1:8000")
    """Where the machine itself reaches the port that was asked about."""
    servers: tuple[FoundServer, ...] = bound(field.several(field.structure(FoundServer), 1000), ())
    is_answering: bool = bound(field.flag, default=True)
    """Something answers there, whatever it is."""
    served_name: str | None = bound(parts.any_text)
    """What the server at the port calls its model."""
    listens_as: str | None = bound(parts.word)
    """The user whose process answers at the port, where that is another program in front of what serves."""
    front: str | None = bound(field.optional(field.sentence))
    """That program."""
    engines: tuple[FoundEngine, ...] = bound(field.several(field.structure(FoundEngine), 1000), ())
