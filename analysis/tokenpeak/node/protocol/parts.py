"""Parts of answers, most of which archives record too: a phase, samples, a machine, production, a restoration.

`bound` and `needed` say how each is read of a node's answer; a record of the archive has the same fields, read by
their types. None: nobody says.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import Any, Literal, Mapping, get_args

from tokenpeak.node.protocol import field
from tokenpeak.node.protocol.field import bound, needed

word = field.optional(field.word)
sentence = field.optional(field.sentence)
instant_s = field.number(-1e9, 1e10)
seconds = field.optional(instant_s)
any_text = field.optional(field.text())
texts = field.several(field.text(), 100_000)
sentences = field.several(field.sentence, 100_000)
_bytes = field.optional(field.integer())

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
phase_name = field.one_of(*get_args(PhaseName))
PhaseKind = Literal["orchestration", "engine_start", "load", "production_start"]
"""Whose time a phase is; orchestration is TokenPeak's own."""
EnergyBoundary = Literal["gpu_boards", "cpu_package", "cpu_and_dram", "node"]
"""What an energy or power is of: nothing outside is in it."""


@dataclass(frozen=True)
class Phase:
    """A span of a command on the node, or of a trial, from its start on."""

    name: str = dataclasses.field(metadata=needed(field.word))
    kind: PhaseKind = dataclasses.field(metadata=needed(field.one_of(*get_args(PhaseKind))))
    started_s: float = dataclasses.field(metadata=needed(instant_s))
    duration_s: float = dataclasses.field(metadata=needed(instant_s))


phases = field.several(field.structure(Phase), 10_000)


@dataclass(frozen=True)
class Series:
    """Samples on one clock, and a column of equal length for each quantity.

    `t_s` are seconds after the trial's start; in a node's answer, unix seconds of the node. Names carry units:
    requests_running, requests_waiting, requests_swapped, kv_cache_usage, cpu_cache_usage (0..1), gpu0_power_w,
    gpu0_sm_clock_mhz, gpu0_temperature_c, gpu0_vram_used_bytes, gpu0_utilization (0..1), gpu0_slowed (0 or 1) and so
    on. None: no sample.
    """

    t_s: tuple[float, ...] = bound(field.several(instant_s, field.SAMPLES_LIMIT), ())
    columns: dict[str, tuple[float | None, ...]] = field.mapped(field.columns)


def series(value: Any) -> Series:
    """Samples whose columns are all of one length; raises ValueError."""
    read: Series = field.structure(Series)(value)
    if any(len(column) != len(read.t_s) for column in read.columns.values()):
        raise ValueError("has columns of another length than t_s")
    return read


@dataclass(frozen=True)
class Gpu:
    """One device as the node's own tools report it; None where they do not say."""

    index: int = dataclasses.field(metadata=needed(field.integer()))
    """Its number, as nvidia-smi counts."""
    name: str = dataclasses.field(metadata=needed(field.word))
    """Its name, as nvidia-smi has it."""
    vram_bytes: int | None = bound(_bytes)
    """Its memory."""
    vram_used_bytes: int | None = bound(_bytes)
    """What of it is in use."""
    driver: str | None = bound(word)
    """The driver's version."""
    power_limit_w: float | None = bound(field.optional(field.number()))
    """The power limit that it is set to."""
    compute_capability: str | None = bound(word)
    """CUDA's, such as 7.0."""
    uuid: str | None = bound(word)
    """What nvidia-smi calls its UUID."""


@dataclass(frozen=True)
class InstalledEngine:
    """An engine build of the declaration, by its name, with what its installation says of itself."""

    name: str = dataclasses.field(metadata=needed(field.word))
    version: str | None = bound(word)
    """That the inventory says; None: whatever is installed."""
    installed: str | None = bound(word)
    """That its installation says; None where it was not asked, or does not say."""
    image: str | None = bound(sentence)
    """The container image that it is started from; None for a command on the node."""
    digest: str | None = bound(word)
    """`sha256:…` of that image, or of the command's file; None where it was not looked at."""
    help: tuple[str, ...] = bound(texts, ())
    """The lines of its own help that begin with a flag; empty when it was not asked."""
    problem: str | None = bound(sentence)
    """Why it cannot be started there."""


@dataclass(frozen=True)
class PowerMeter:
    """What a node's power or energy is measured within, and by what."""

    boundary: EnergyBoundary = dataclasses.field(metadata=needed(field.one_of(*get_args(EnergyBoundary))))
    by: str = dataclasses.field(metadata=needed(field.word))
    """energy counter, power readings, BMC, DCMI, declared command, RAPL."""


@dataclass(frozen=True)
class Production:
    """What the node normally serves."""

    manager: str = dataclasses.field(metadata=needed(field.word))
    """systemd, command, docker, podman, compose, kubernetes, supervisord or none."""
    running: bool = dataclasses.field(metadata=needed(field.flag))
    unit: str | None = bound(word)
    enabled: bool | None = bound(field.optional(field.flag))
    """Whether it comes back at boot, in archives of earlier versions."""
    url: str | None = bound(sentence)
    model: str | None = bound(sentence)
    arguments: tuple[str, ...] = bound(texts, ())
    """What its engine was started with, the model first; empty when that cannot be seen. Secrets are left out."""


@dataclass(frozen=True)
class Tensors:
    """Tensors of one kind in a checkpoint's files."""

    name: str = dataclasses.field(metadata=needed(field.word))
    """With `*` for the numbers of layers and experts, and `+` for a layer behind the decoder's last."""
    dtype: str = dataclasses.field(metadata=needed(field.word))
    """As safetensors has it: BF16, F8_E4M3, U8 …"""
    count: int = dataclasses.field(metadata=needed(field.integer(0)))
    values: int = dataclasses.field(metadata=needed(field.integer(0)))
    """Of all together."""
    bytes: int = dataclasses.field(metadata=needed(field.integer(0)))
    """Of all together."""


@dataclass(frozen=True)
class Checkpoint:
    """A model as its folder on a node has it."""

    model: str = dataclasses.field(metadata=needed(field.word))
    """Its folder, or its name on the hub."""
    config: str = dataclasses.field(metadata=needed(field.text(1 << 20)))
    """Its config.json."""
    tensors: tuple[Tensors, ...] = bound(field.several(field.structure(Tensors), 4000), ())
    """What its files of weights hold; empty where it has none of safetensors."""


@dataclass(frozen=True)
class MachineFacts:
    """Facts of a machine, its engine and its production, as a probe answers them and an archive has them."""

    simulated: bool = bound(field.flag, default=False)
    gpus: tuple[Gpu, ...] = bound(field.several(field.structure(Gpu), 1000), ())
    """Its devices, one entry each."""
    interconnect: str | None = bound(word)
    """How its boards are linked: `NV12`, or where not all pairs are alike `2x NV4, 4x SYS`; None where nobody says."""
    cpu: str | None = bound(field.word)
    """Its processor's name."""
    cpu_cores: int | None = bound(field.integer(0))
    """Cores of all processors."""
    memory_bytes: int | None = bound(_bytes)
    """Main memory."""
    disk_free_bytes: int | None = bound(field.integer(0))
    os: str | None = bound(field.word)
    kernel: str | None = bound(field.word)
    power_meters: tuple[PowerMeter, ...] = bound(field.several(field.structure(PowerMeter), 10), ())
    """What measures power or energy there; empty also in archives written before it was recorded."""
    engine_version: str | None = bound(word)
    """Of its default engine build, as installed."""
    engine_help: tuple[str, ...] = bound(texts, ())
    """The lines of that engine's own help that begin with a flag; empty when it was not asked."""
    production: Production | None = bound(field.optional(field.structure(Production)))
    vram_holders: tuple[str, ...] = bound(sentences, ())
    """Processes that hold VRAM, as `pid name MiB`."""
    engine_port_free: bool | None = bound(field.flag)
    model_present: bool | None = bound(field.optional(field.flag))
    checkpoint: Checkpoint | None = bound(field.optional(field.structure(Checkpoint)))
    """The model that its inventory has it serve; None where its files are not seen, and in earlier archives."""
    problems: tuple[str, ...] = bound(sentences, ())
    """What would keep a trial from running, in sentences that say what to do."""


@dataclass(frozen=True)
class FoundEngine:
    """A way to start vLLM that is there: a command, or an image with what its container is given."""

    command: tuple[str, ...] = bound(texts, ())
    version: str | None = bound(word)
    image: str | None = bound(any_text)
    runtime: str | None = bound(word)
    mounts: tuple[str, ...] = bound(texts, ())
    user: str | None = bound(word)


@dataclass(frozen=True)
class FoundServer:
    """What serves a model, and who starts and stops it: the keys of tokenpeak_production, as far as they are known."""

    manager: str = bound(field.word, "none")
    """A manager of production; `process` for what nobody manages."""
    unit: str | None = bound(any_text)
    user: str | None = bound(word)
    """Whose unit it is; None: the system's."""
    file: str | None = bound(any_text)
    project: str | None = bound(word)
    runs_as: str | None = bound(word)
    """The user of its processes; None: root, or a container's own."""
    argv: tuple[str, ...] = bound(texts, ())
    """Less what may be secret."""
    cwd: str | None = bound(any_text)
    env: Mapping[str, str] = bound(field.variables)
    """Of a process that nobody manages: the variables that vLLM's answers depend on."""
    pid: int | None = bound(field.optional(field.integer()))
    model: str | None = bound(any_text)
    """The hub name or path that it loads."""
    ports: tuple[int, ...] = bound(field.several(field.integer(1, 65535), 1000), ())
    """Of this machine, by its command line or what its container has published."""
    engine: FoundEngine | None = bound(field.optional(field.structure(FoundEngine)))
    notes: tuple[str, ...] = bound(field.several(field.sentence, 10_000), ())
    """What else whoever writes the inventory must know."""


LEFT_DOWN = "Production was down before and was left down."
"""The message of a restoration of production that was down before and that nobody started."""


@dataclass(frozen=True)
class Restoration:
    """How production stood after a trial."""

    restored: bool | None = bound(field.optional(field.flag))
    """It is as it was recorded: it answers a real completion, or it was down before and still is. Null where that
    is not known: production could not be looked at. An archive then has false, and says so in the message."""
    was_running: bool = bound(field.flag, default=False)
    model: str | None = bound(sentence)
    downtime_s: float | None = bound(seconds)
    message: str = bound(field.sentence, "")


@dataclass(frozen=True)
class RestoreOutcome(Restoration):
    """How a restoration ended, with whose trial had the node."""

    trial_id: str | None = bound(word)
    holder: str | None = bound(word)
    by: str | None = bound(word)
    """The command that restored; null where nothing had to be restored."""
    at_unix_s: float | None = bound(seconds)
    definition: str | None = bound(field.optional(field.one_of("put_back", "confirmed", "changed")))
    """Of an apply: whether production has its former definition again, or the one that was confirmed. Null where
    production is not back. Of both: that somebody has changed production's definition since it was recorded."""


@dataclass(frozen=True)
class Overlap:
    """Production that somebody started during a trial."""

    nonce: str = dataclasses.field(metadata=needed(field.word))
    trial_id: str = dataclasses.field(metadata=needed(field.word))
    holder: str = dataclasses.field(metadata=needed(field.word))
    at_unix_s: float = dataclasses.field(metadata=needed(instant_s))


def picked(kind: type[Any], known: Mapping[str, Any]) -> Any:
    """One of `kind` from the fields that a larger object has for it."""
    return kind(**{one.name: known[one.name] for one in fields(kind) if one.name in known})
