"""Node facts: GPUs, machine, versions and production of a node, as the probe found them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from tokenpeak.node.engine.builds import ONLY
from tokenpeak.node.protocol.parts import InstalledEngine, MachineFacts
from tokenpeak.records.base import Record


class ModelName(Record):
    """Which model a config serves, and under which name requests ask for it."""

    name: str
    revision: str | None = None
    served_name: str


class HardwareKey(NamedTuple):
    """What makes two nodes share a plan and a search: all that can change a result.

    Boards of one name differ in memory, drivers in their branch.
    """

    behind: str | None
    """The server that stands for the machines behind it; None for a node of one's own."""
    boards: tuple[tuple[str, int | None, str | None], ...]
    """Of each: its name, memory in GiB, branch of the driver."""
    interconnect: str | None = None
    cpu: str | None = None
    cpu_cores: int | None = None
    memory_gib: int | None = None
    engines: tuple[tuple[str, str | None], ...] = ()
    """Of each engine build that can be started there, the default one first: its name, and its version and image."""
    engine_env: tuple[tuple[str, str], ...] = ()
    """What its inventory sets in the engine's environment, as far as a plan depends on it."""
    engine_env_allowed: tuple[str, ...] = ()
    """Which variables a config may set there: one that is refused on a node is dropped for its kind alone."""


class Container(Record):
    """How the image of an engine build is run, as the inventory declares it; None where it leaves that open."""

    runtime: Literal["docker", "podman"] = "docker"
    mounts: tuple[str, ...] = ()
    """`NODE:CONTAINER`, with `:ro` behind it where the container only reads."""
    devices: tuple[str, ...] | None = None
    """None: the node's chosen boards, all where none are chosen."""
    user: str | None = None
    shm_size: str | None = None
    limits: dict[str, str] = {}
    """Of memory, cpus, cpuset_cpus and pids."""
    args: tuple[str, ...] = ()
    """Further options of the runtime."""


@dataclass(frozen=True)
class EngineBuild(InstalledEngine):
    """An engine that a node can start: by which name, and of which version of vLLM."""

    container: Container | None = None
    """How its image is run; None also in archives written before it was recorded."""

    @property
    def identity(self) -> str | None:
        """The version by which it is the same on two nodes: with an image's digest, for a tag may name two images."""
        version = self.installed or self.version
        if self.image is None or self.digest is None:
            return version
        return f"{version or '?'} ({self.digest.partition(':')[2][:12]})"

    @property
    def release(self) -> str | None:
        """The version whose flags it takes; None where nobody knows."""
        return self.version or self.installed


class NodeFacts(Record, MachineFacts):
    """What the probe found on a node, what its inventory declares without a probe, or what an import's source says.

    A server that TokenPeak did not launch stands as a node whose source is `endpoint`; its GPUs are those of all
    machines behind it, where an inventory names them.
    """

    node: str
    source: Literal["probed", "declared", "published", "endpoint"]
    probed_at: datetime | None = None
    engines: tuple[EngineBuild, ...] = ()
    """Its engine builds, the default one first; empty in archives written before there were several."""
    engine_env: dict[str, str] = {}
    """What its inventory sets in the engine's environment, as far as a plan depends on it."""
    engine_env_allowed: tuple[str, ...] | None = None
    """Names and `PREFIX_*` patterns of the variables that a config may set there; None: the default ones."""
    model: ModelName | None = None
    """The model that its inventory has it serve; None also in archives written before it was recorded."""

    @classmethod
    def of(cls, machine: MachineFacts, **own: object) -> "NodeFacts":
        """The record of a machine's facts, with the fields that are the node's own."""
        return cls.model_validate({**vars(machine), **own})

    @property
    def builds(self) -> tuple[EngineBuild, ...]:
        """Its engine builds, the default one first; never empty."""
        one = EngineBuild(name=ONLY, installed=self.engine_version, help=self.engine_help)
        return self.engines or (one,)

    @property
    def hardware_key(self) -> HardwareKey:
        """The facts by which it is one kind of hardware with other nodes; of a machine with GPUs, its GPUs alone."""
        boards = [(gpu.name, _gib(gpu.vram_bytes), (gpu.driver or "").partition(".")[0] or None) for gpu in self.gpus]
        behind = self.node if self.source == "endpoint" else None
        # Of what others measured, the engine is a config's, not a machine's.
        own = self.source in ("probed", "declared")
        builds = [build for build in self.builds if build.problem is None] if own else []
        engines = tuple((build.name, build.identity) for build in builds)
        env = tuple(sorted(self.engine_env.items()))
        allowed = tuple(sorted(self.engine_env_allowed or ()))
        if boards or behind:
            ordered = tuple(sorted(boards, key=repr))
            return HardwareKey(behind, ordered, self.interconnect, None, None, None, engines, env, allowed)
        # A system keeps some memory for itself, more or less: what is installed comes in multiples of 8 GiB.
        memory_gib = None if self.memory_bytes is None else -(-self.memory_bytes // (8 << 30)) * 8
        return HardwareKey(None, (), None, self.cpu, self.cpu_cores, memory_gib, engines, env, allowed)

    def is_still(self, earlier: "NodeFacts") -> bool:
        """Whether it is the kind of hardware that it was.

        An interconnect that one of the two lacks is not compared, nor are engine builds with a record that has none.
        What a config may set there is no part of it: a launch asks again.
        """
        now, then = (each.hardware_key._replace(engine_env_allowed=()) for each in (self, earlier))
        if not (self.engines and earlier.engines):
            now, then = now._replace(engines=()), then._replace(engines=())
        if None in (now.interconnect, then.interconnect):
            now, then = now._replace(interconnect=None), then._replace(interconnect=None)
        return now == then

    @property
    def hardware(self) -> str:
        """The label of its kind of hardware, such as `4x Tesla V100-PCIE-32GB`; see `hardware_groups`."""
        if self.source == "endpoint":
            behind = Counter(gpu.name for gpu in self.gpus)
            boards = " + ".join(f"{count}x {name}" for name, count in sorted(behind.items()))
            return f"{boards} behind {self.node}" if boards else f"server at {self.node}"
        if self.gpus:
            names = sorted({gpu.name for gpu in self.gpus})
            return f"{len(self.gpus)}x {' + '.join(names)}"
        if self.source == "published" and self.cpu is None:
            return "unknown hardware"
        return f"CPU {self.cpu or 'unknown'} ({self.cpu_cores or '?'} cores)"


def hardware_groups(nodes: Iterable[NodeFacts]) -> dict[str, list[NodeFacts]]:
    """The nodes by the label of their kind of hardware, in the order in which the kinds first appear.

    Nodes that serve different models are of different kinds, and every label then names its model. Kinds whose labels
    are alike are distinguished by what differs besides: memory, driver's branch, interconnect, and where these are
    equal too the engine builds, then a number.
    """
    kinds: dict[tuple[HardwareKey, ModelName | None], list[NodeFacts]] = {}
    for node in nodes:
        kinds.setdefault((node.hardware_key, node.model), []).append(node)
    models = _model_words({model for _, model in kinds})
    labels = {key: same[0].hardware + models[key[1]] for key, same in kinds.items()}
    for details in (_details, _engine_details):
        distinguished = {
            label: len({details(key) for (key, _), other in labels.items() if other == label}) > 1
            for label in labels.values()
        }
        labels = {
            kind: f"{label} ({details(kind[0])})" if distinguished[label] else label for kind, label in labels.items()
        }
    alike, numbers = Counter(labels.values()), Counter[str]()
    for key, label in labels.items():
        numbers[label] += 1
        labels[key] = f"{label} #{numbers[label]}" if alike[label] > 1 else label
    return {labels[key]: same for key, same in kinds.items()}


def _model_words(models: Collection[ModelName | None]) -> dict[ModelName | None, str]:
    """What distinguishes nodes of different models in a label, as short as it can be; empty where there is one."""
    if len(models) < 2:
        return dict.fromkeys(models, "")
    forms: tuple[Callable[[ModelName], str], ...] = (
        lambda model: model.name.rpartition("/")[2],
        lambda model: model.name,
        lambda model: f"{model.name} at {model.revision or 'its newest revision'}",
        lambda model: f"{model.name} at {model.revision or 'its newest revision'} as {model.served_name}",
    )
    named = [model for model in models if model is not None]
    short = next((form for form in forms if len({form(model) for model in named}) == len(named)), forms[-1])
    return {model: " without a model" if model is None else f" serving {short(model)}" for model in models}


def _engine_details(key: HardwareKey) -> str:
    return " + ".join(f"{name} {version or '?'}" for name, version in key.engines) or "no engine"


def _details(key: HardwareKey) -> str:
    if not key.boards:
        return f"{key.memory_gib or '?'} GiB"
    boards = Counter(f"{gib or '?'} GiB, driver {driver or '?'}" for _, gib, driver in key.boards)
    text = " + ".join(text if len(boards) == 1 else f"{count}x {text}" for text, count in boards.items())
    return f"{text}, {key.interconnect}" if key.interconnect else text


def _gib(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else round(size_bytes / (1 << 30))
