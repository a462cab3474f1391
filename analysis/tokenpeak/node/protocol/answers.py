"""Answers of the node script, one JSON object for each command: built on the node and parsed by the controller.

A node is not trusted: what it sends is shown and recorded, and must neither fill the controller's memory nor end a
sweep in a traceback. A field that is missing, unknown, of another type or out of bounds is left out, and `unusable`
names it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Iterator, Literal, Mapping, TypeVar, get_args

from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import one_line, shown_value
from tokenpeak.node.protocol import field
from tokenpeak.node.protocol.field import bound

_UNKNOWN_NAMED = 5
_word = field.optional(field.word)
_words = field.optional(field.sentence)
_seconds = field.number(-1e9, 1e10)
_status = field.optional(field.integer(-(1 << 31), (1 << 31) - 1))
_bytes = field.optional(field.integer())
_sentences = field.several(field.sentence, 100_000)
_texts = field.several(field.text(), 100_000)


PhaseName = Literal[
    "recording",
    "arming",
    "draining",
    "production_stop",
    "changing",
    "memory_wait",
    "idle_power",
    "engine_start",
    "first_completion",
    "engine_ready",
    "engine_failed",
    "collecting",
    "engine_stop",
    "production_start",
    "verifying",
    "rejoining",
    "restored",
    "finished",
    "baking",
    "confirming",
    "confirmed",
]
"""Phases of a launch or a change, then of a finish or a restoration, then of an apply that waits for its controller."""
_phase = field.one_of(*get_args(PhaseName))


@dataclass(frozen=True)
class PhaseMark:
    """The phase that a command on the node has begun last, for the status that another command gives."""

    name: PhaseName = bound(_phase)


@dataclass(frozen=True)
class PhaseSpan:
    """How long a phase of a command took, from its start on."""

    name: str = bound(field.word)
    kind: str = bound(field.one_of("orchestration", "engine_start", "load", "production_start"))
    started_s: float = bound(_seconds)
    duration_s: float = bound(_seconds)


_phases = field.several(field.structure(PhaseSpan), 10_000)


@dataclass(frozen=True)
class Samples:
    """What the sampler wrote during a trial: unix seconds of the node, and a column for each quantity."""

    t_s: tuple[float, ...] = bound(field.several(_seconds, field.SAMPLES_LIMIT), ())
    columns: Mapping[str, tuple[float | None, ...]] = bound(field.columns)


def samples(value: Any) -> Samples:
    """Samples whose columns are all of one length; raises ValueError."""
    read: Samples = field.structure(Samples)(value)
    if any(len(column) != len(read.t_s) for column in read.columns.values()):
        raise ValueError("has columns of another length than t_s")
    return read


NO_SAMPLES = Samples(t_s=(), columns={})


@dataclass(frozen=True)
class GpuState:
    """A board as its maker's tool reports it; null where that does not say."""

    index: int = bound(field.integer())
    name: str = bound(field.word)
    uuid: str | None = bound(_word)
    driver: str | None = bound(_word)
    vram_bytes: int | None = bound(_bytes)
    vram_used_bytes: int | None = bound(_bytes)
    power_limit_w: float | None = bound(field.optional(field.number()))
    compute_capability: str | None = bound(_word)


@dataclass(frozen=True)
class BuildState:
    """An engine build of the declaration, with what its installation says of itself."""

    name: str = bound(field.word)
    version: str | None = bound(_word)
    installed: str | None = bound(_word)
    image: str | None = bound(_words)
    digest: str | None = bound(_word)
    """`sha256:…` of its image, or of its command's file."""
    help: tuple[str, ...] = bound(_texts, ())
    problem: str | None = bound(_words)


@dataclass(frozen=True)
class MeterState:
    """What a node's power or energy is measured within, and by what."""

    boundary: str = bound(field.one_of("gpu_boards", "node", "cpu_package", "cpu_and_dram"))
    by: str = bound(field.word)


@dataclass(frozen=True)
class ProductionState:
    """Production as it is: its manager, whether it runs, what it serves and with which arguments."""

    manager: str = bound(field.word)
    unit: str | None = bound(_word)
    running: bool = bound(field.flag)
    enabled: bool | None = bound(field.optional(field.flag))
    url: str | None = bound(_words)
    model: str | None = bound(_words)
    arguments: tuple[str, ...] = bound(_texts, ())


LEFT_DOWN = "Production was down before and was left down."
"""The message of a restoration of production that was down before and that nobody started."""


@dataclass(frozen=True)
class RestoreOutcome:
    """How a restoration ended: whether production is as it was, after how long, and whose trial had the node."""

    restored: bool | None = bound(field.optional(field.flag))
    """Null where that is not known: production could not be looked at."""
    was_running: bool = bound(field.flag)
    model: str | None = bound(_words)
    downtime_s: float | None = bound(field.optional(_seconds))
    message: str = bound(field.sentence, "")
    trial_id: str | None = bound(_word)
    holder: str | None = bound(_word)
    by: str | None = bound(_word)
    """The command that restored; null where nothing had to be restored."""
    at_unix_s: float | None = bound(field.optional(_seconds))
    definition: str | None = bound(field.optional(field.one_of("put_back", "confirmed", "changed")))
    """Of an apply: whether production has its former definition again, or the one that was confirmed. Null where
    production is not back. Of both: that somebody has changed production's definition since it was recorded."""


_outcome = field.optional(field.structure(RestoreOutcome))


@dataclass(frozen=True)
class Overlap:
    """Production that somebody started during a trial."""

    nonce: str = bound(field.word)
    trial_id: str = bound(field.word)
    holder: str = bound(field.word)
    at_unix_s: float = bound(_seconds)


@dataclass(frozen=True)
class CommandFailure:
    """Why a command could not do its work."""

    code: str
    text: str


@dataclass(frozen=True)
class NodeAnswer:
    """What every answer has beside its own fields."""

    script: str | None = bound(_word)
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
class ProbeAnswer(NodeAnswer):
    """Facts of the node, under the names that the archive has, and its declaration without what may be secret."""

    probed_at: str | None = bound(field.word)
    simulated: bool | None = bound(field.flag)
    gpus: tuple[GpuState, ...] = bound(field.several(field.structure(GpuState), 1000), ())
    interconnect: str | None = bound(_word)
    cpu: str | None = bound(field.word)
    cpu_cores: int | None = bound(field.integer(0))
    memory_bytes: int | None = bound(_bytes)
    disk_free_bytes: int | None = bound(field.integer(0))
    os: str | None = bound(field.word)
    kernel: str | None = bound(field.word)
    power_meters: tuple[MeterState, ...] = bound(field.several(field.structure(MeterState), 10), ())
    engine_version: str | None = bound(_word)
    engine_help: tuple[str, ...] = bound(_texts, ())
    engines: tuple[BuildState, ...] = bound(field.several(field.structure(BuildState), 100), ())
    engine_env_allowed: tuple[str, ...] = bound(_sentences, ())
    production: ProductionState | None = bound(field.optional(field.structure(ProductionState)))
    vram_holders: tuple[str, ...] = bound(_sentences, ())
    engine_port_free: bool | None = bound(field.flag)
    model_present: bool | None = bound(field.optional(field.flag))
    problems: tuple[str, ...] = bound(_sentences, ())
    """What would keep a trial from running."""
    declaration: Json | None = bound(field.mapping)


@dataclass(frozen=True)
class LaunchAnswer(NodeAnswer):
    """How the engine came up, or how far it came."""

    ready: bool | None = bound(field.flag)
    failure_phase: str | None = bound(_word)
    timed_out: bool | None = bound(field.flag)
    message: str | None = bound(_words)
    exit_status: int | None = bound(_status)
    log_tail: str | None = bound(field.optional(field.text()))
    engine_version: str | None = bound(_word)
    """What the engine itself reported; null where it was not ready, or reports none."""
    engine_digest: str | None = bound(_word)
    """`sha256:…` of the image or the command's file that was started."""
    model_digest: str | None = bound(_word)
    """`sha256:…` of the model's files; null where they were not found."""
    pid: int | None = bound(field.optional(field.integer()))
    host: str | None = bound(field.word)
    port: int | None = bound(field.integer())
    api_key_used: bool | None = bound(field.flag)
    phases: tuple[PhaseSpan, ...] = bound(_phases, ())
    started_at_unix_s: float | None = bound(_seconds)
    production_found_down: bool | None = bound(field.flag)
    """Production had ended by itself since the sweep began."""
    production: ProductionState | None = bound(field.optional(field.structure(ProductionState)))


@dataclass(frozen=True)
class FinishAnswer(NodeAnswer):
    """What a trial left on the node, and how production stands; `restoration` is null where it was not asked for."""

    phases: tuple[PhaseSpan, ...] = bound(_phases, ())
    started_at_unix_s: float | None = bound(_seconds)
    engine_ran: bool | None = bound(field.optional(field.flag))
    exit_status: int | None = bound(_status)
    engine_stopped: bool | None = bound(field.flag)
    restoration: RestoreOutcome | None = bound(_outcome)
    given_back_by: str | None = bound(_word)
    """Whoever ended the trial before: `guard`, `restore`, or `another` where a trial of someone else is there."""
    production_overlap_unix_s: float | None = bound(field.optional(_seconds))
    telemetry: Samples = bound(samples, NO_SAMPLES)
    log: str | None = bound(field.text(1 << 62))
    """The engine's log: base64 of zlib of UTF-8."""


@dataclass(frozen=True)
class RestoreAnswer(NodeAnswer):
    """How production stands, and how the restoration before this one ended."""

    phases: tuple[PhaseSpan, ...] = bound(_phases, ())
    restoration: RestoreOutcome | None = bound(field.structure(RestoreOutcome))
    last_restoration: RestoreOutcome | None = bound(_outcome)


@dataclass(frozen=True)
class StatusAnswer(NodeAnswer):
    """What the node serves, which trial has it, and whether a guard watches."""

    production: ProductionState | None = bound(field.optional(field.structure(ProductionState)))
    problem: str | None = bound(_words)
    engine: Json | None = bound(field.optional(field.mapping))
    armed: bool | None = bound(field.flag)
    """A trial has the node."""
    guard_alive: bool | None = bound(field.flag)
    lease_remaining_s: float | None = bound(field.optional(_seconds))
    holder: str | None = bound(_word)
    trial_id: str | None = bound(_word)
    drained: tuple[str, ...] = bound(_sentences, ())
    """What of the node is out of its load balancer."""
    secret: str | None = bound(_word)
    generations: Json | None = bound(field.mapping)
    """The highest generation of each resumed sweep's controllers that was here."""
    phase: PhaseName | None = bound(field.optional(_phase))
    held_since_unix_s: float | None = bound(field.optional(_seconds))
    """When a person gave the node back from a sweep; no trial begins there until a person releases it."""
    last_restoration: RestoreOutcome | None = bound(_outcome)
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
    message: str | None = bound(_words)


@dataclass(frozen=True)
class TelemetryAnswer(NodeAnswer):
    """The end of the sampler."""

    message: str | None = bound(_words)


@dataclass(frozen=True)
class ProduceAnswer(NodeAnswer):
    """What became of the inventory's own production; `ready` is null where nothing was started."""

    changed: bool | None = bound(field.flag)
    message: str | None = bound(_words)
    ready: bool | None = bound(field.optional(field.flag))


@dataclass(frozen=True)
class UninstallAnswer(NodeAnswer):
    """TokenPeak is gone from the node, but for what `left` names."""

    removed: bool | None = bound(field.flag)
    left: tuple[str, ...] = bound(_sentences, ())


def as_json(answer: NodeAnswer) -> Json:
    """The answer's own fields as they are sent; `json.dumps` takes them with `default=vars`."""
    return {name: getattr(answer, name) for name in field.checks(type(answer)) if name != "script"}


def picked(kind: type[Any], known: Mapping[str, Any]) -> Any:
    """One of `kind` from the fields that a larger object of the node's own has for it."""
    return kind(**{one.name: known[one.name] for one in fields(kind) if one.name in known})


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
