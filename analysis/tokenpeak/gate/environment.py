"""Environment of two sides: what differs beside the configs, such as driver, engine version, node and model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tokenpeak.gate.side import Side
from tokenpeak.records import NodeFacts, SweepRecord

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What differs, on which hardware of the old side, with each side's values."""

    hardware: str
    what: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def words(self) -> str:
        """The difference in a few words."""
        old, new = (", ".join(values) or "not known" for values in (self.old, self.new))
        return f"{self.what}: {old} → {new}"


_OF_NODES: Mapping[str, Callable[[NodeFacts], object]] = {
    "node": lambda node: node.node,
    "GPU": lambda node: (
        f"{len(node.gpus)}x {', '.join(sorted({gpu.name for gpu in node.gpus}))}" if node.gpus else None
    ),
    "GPU memory": lambda node: _gib(sum(gpu.vram_bytes or 0 for gpu in node.gpus)),
    "GPU power limit": lambda node: _watts(sum(gpu.power_limit_w or 0 for gpu in node.gpus)),
    "driver": lambda node: node.gpus[0].driver if node.gpus else None,
    "interconnect": lambda node: node.interconnect,
    "CPU": lambda node: f"{node.cpu} ({node.cpu_cores or '?'} cores)" if node.cpu else None,
    "OS": lambda node: node.os,
    "kernel": lambda node: node.kernel,
    "engine environment": lambda node: " ".join(f"{name}={value}" for name, value in sorted(node.engine_env.items())),
}
_OF_LAUNCHES = {
    "engine version": "engine_version",
    "engine checksum": "engine_digest",
    "model checksum": "model_digest",
}
_OF_SWEEPS: Mapping[str, Callable[[SweepRecord], object]] = {
    "load hosts": lambda record: ", ".join(record.load_hosts) or "the controller",
    "TokenPeak": lambda record: record.provenance.tokenpeak_version,
}


def differences(old: Side, new: Side, hardware: Mapping[str, str]) -> Iterator[Difference]:
    """What differs on each kind of hardware that both have (`hardware`: old → new), and between the sweeps."""
    for own, other in hardware.items():
        for what, of_node in _OF_NODES.items():
            sides = [_words(map(of_node, side.nodes_of(kind))) for side, kind in ((old, own), (new, other))]
            yield from _differing(own, what, sides)
        for what, column in _OF_LAUNCHES.items():
            sides = [_words(_launched(side, kind, column)) for side, kind in ((old, own), (new, other))]
            yield from _differing(own, what, sides)
        builds = [
            _words(config.build for config in side.launched if config.hardware == kind)
            for side, kind in ((old, own), (new, other))
        ]
        yield from _differing(own, "engine build", builds)
    for what, of_sweep in _OF_SWEEPS.items():
        yield from _differing("", what, [_words(map(of_sweep, side.records)) for side in (old, new)])


def _launched(side: Side, hardware: str, column: str) -> Sequence[object]:
    if column not in side.trials.columns:
        return ()
    return side.trials.filter(pl.col("hardware") == hardware, pl.col("status") == "ok")[column].to_list()


def _differing(hardware: str, what: str, sides: Sequence[tuple[str, ...]]) -> Iterator[Difference]:
    old, new = sides
    if old != new:
        yield Difference(hardware=hardware, what=what, old=old, new=new)


def _words(values: object) -> tuple[str, ...]:
    """The values that are known, each once, sorted."""
    assert hasattr(values, "__iter__"), "several values"
    return tuple(sorted({str(value) for value in values if value}))


def _gib(size_bytes: int) -> str | None:
    return f"{round(size_bytes / _GIB)} GiB" if size_bytes else None


def _watts(power_w: float) -> str | None:
    return f"{power_w:g} W" if power_w else None
