"""Side of a gate: the configs of its archives with each launch's figures, and what differs beside the configs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from tokenpeak.errors import ArchiveError
from tokenpeak.ranking.rank import figures_of
from tokenpeak.ranking.upgrade import SAME
from tokenpeak.records import BY_THE_ENGINE, ENGINE_CAUSES, NodeFacts, SweepRecord
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.frames import Frames, open_frames


@dataclass(frozen=True, kw_only=True)
class Load:
    """One workload at one load level; equal only where all of both is equal."""

    workload: str
    level: str
    definition: str
    """Workload and level as JSON."""
    figures: tuple[str, ...]
    """The metrics' columns that launches are compared by under it."""


@dataclass(frozen=True, kw_only=True)
class SideLaunch:
    """One launch: a row of the frame of runs for each load."""

    node: str
    fault: str | None
    """Why it failed by its own fault; None: it did not."""
    runs: Mapping[Load, Mapping[str, object]]


@dataclass(frozen=True, kw_only=True)
class FigureValues:
    """One figure of one config under one load, launch by launch."""

    measured: tuple[float, ...]
    nodes: tuple[str, ...]
    """Where each of them was measured."""
    broken: tuple[str, ...]
    """For each launch that gave none by its own fault, why."""
    unusable: int
    """Launches that gave none for another reason: measured badly, interrupted, a failing machine."""


@dataclass(frozen=True, kw_only=True)
class SideConfig:
    """A config on one kind of hardware, with its launches; none where it was only planned, or dropped."""

    hardware: str
    config_id: str
    name: str
    same: str
    """JSON of what it is but for its engine build."""
    build: str | None
    dropped: str | None
    launches: list[SideLaunch] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    """Of each launch that ended well."""

    @property
    def loads(self) -> list[Load]:
        """The loads of its launches, in their order."""
        return list(dict.fromkeys(load for launch in self.launches for load in launch.runs))

    def values(self, load: Load, metric: str) -> FigureValues:
        """A metric's column under a load."""
        measured, nodes, broken, unusable = [], [], [], 0
        for launch in self.launches:
            run = launch.runs.get(load)
            if run is None:
                broken += [launch.fault] if launch.fault else []
                unusable += launch.fault is None
                continue
            value = run.get(metric)
            if run["verdict"] != "invalid" and isinstance(value, int | float) and value > 0:
                measured.append(float(value))
                nodes.append(launch.node)
            elif run["well_measured"] and run["verdict"] == "invalid":
                codes = [code for code in _texts(run["verdict_codes"]) if code in BY_THE_ENGINE]
                broken.append(", ".join(codes).replace("_", " "))
            else:
                unusable += 1
        return FigureValues(measured=tuple(measured), nodes=tuple(nodes), broken=tuple(broken), unusable=unusable)


@dataclass(frozen=True, kw_only=True)
class Side:
    """The archives of one side."""

    sweep_ids: tuple[str, ...]
    simulated: bool
    spec: SweepSpec
    """Of the last of them."""
    records: tuple[SweepRecord, ...]
    configs: Mapping[tuple[str, str], SideConfig]
    """By hardware and config id."""
    trials: pl.DataFrame
    """The rows of its launches."""
    cautions: tuple[str, ...]
    """Remarks for a reader before taking a figure."""

    @property
    def title(self) -> str:
        """Its sweeps, marked where they are simulated."""
        return ", ".join(self.sweep_ids) + (" (simulated)" if self.simulated else "")

    @property
    def launched(self) -> list[SideConfig]:
        """The configs that were launched."""
        return [config for config in self.configs.values() if config.launches]

    def nodes_of(self, hardware: str) -> list[NodeFacts]:
        """The nodes of a kind of hardware on which configs were launched."""
        used = set(self.trials.filter(pl.col("hardware") == hardware)["node"])
        return [
            node
            for record in self.records
            for node in record.nodes
            if node.node in used and record.hardware_of(node) == hardware
        ]


def read_side(paths: Sequence[Path]) -> Side:
    """The archives at or below the paths as one side; launches that no config is compared by are left out."""
    frames = open_frames(list(paths))
    records = tuple(SweepRecord.model_validate_json(text) for text in frames.records["record"])
    simulated = set(frames.sweeps["simulated"])
    if len(simulated) > 1:
        raise ArchiveError(f"{', '.join(map(str, paths))}: simulated and measured sweeps are no one side. Name one.")
    order = frames.sweeps.sort("started_at")["sweep_id"].to_list()
    compared = frames.trials.filter(~pl.col("holdout"), pl.col("status") != "interrupted")
    trials = compared.sort("started_at", "trial_id")
    cautions = [f"skipped {file}" for file in frames.malformed]
    for record in records:
        cautions += record.imported.cautions if record.imported else ()
    return Side(
        sweep_ids=tuple(order),
        simulated=simulated == {True},
        spec=frames.specs[order[-1]],
        records=records,
        configs=_configs(frames, trials),
        trials=trials,
        cautions=tuple(cautions),
    )


def _configs(frames: Frames, trials: pl.DataFrame) -> dict[tuple[str, str], SideConfig]:
    configs: dict[tuple[str, str], SideConfig] = {}
    for row in frames.configs.iter_rows(named=True):
        key = (row["hardware"], row["config_id"])
        build = " ".join(str(row[name]) for name in ("engine_build", "engine_version") if row[name])
        configs.setdefault(
            key,
            SideConfig(
                hardware=row["hardware"],
                config_id=row["config_id"],
                name=row["config_name"],
                same=json.dumps([row[name] for name in SAME]),
                build=build or None,
                dropped=row["dropped_reason"] if row["status"] == "dropped" else None,
            ),
        )
    runs: dict[tuple[str, str], dict[Load, Mapping[str, object]]] = {}
    for row in frames.runs.iter_rows(named=True):
        load = Load(
            workload=row["workload_name"],
            level=row["level_label"],
            definition=f"[{row['workload']},{row['level']}]",
            figures=figures_of(row["workload"], row["level_kind"], row["level_label"]),
        )
        runs.setdefault((row["sweep_id"], row["trial_id"]), {})[load] = row
    for row in trials.iter_rows(named=True):
        config = configs[row["hardware"], row["config_id"]]
        cause = row["failure_cause"]
        fault = f"failed: {str(cause).replace('_', ' ')}" if cause in ENGINE_CAUSES else None
        own = runs.get((row["sweep_id"], row["trial_id"]), {}) if row["status"] == "ok" else {}
        config.launches.append(SideLaunch(node=row["node"], fault=fault, runs=own))
        if row["status"] == "ok" and row["duration_s"] is not None:
            config.duration_s.append(row["duration_s"])
    return configs


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference, on which hardware of the old side, with each side's values."""

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
    """Differences on each kind of hardware that both have (`hardware`: old → new), and between the sweeps."""
    for own, other in hardware.items():
        for name, of_node in _OF_NODES.items():
            sides = [_words(map(of_node, side.nodes_of(kind))) for side, kind in ((old, own), (new, other))]
            yield from _differing(own, name, sides)
        for name, column in _OF_LAUNCHES.items():
            sides = [_words(_launched(side, kind, column)) for side, kind in ((old, own), (new, other))]
            yield from _differing(own, name, sides)
        builds = [
            _words(config.build for config in side.launched if config.hardware == kind)
            for side, kind in ((old, own), (new, other))
        ]
        yield from _differing(own, "engine build", builds)
    for name, of_sweep in _OF_SWEEPS.items():
        yield from _differing("", name, [_words(map(of_sweep, side.records)) for side in (old, new)])


def _launched(side: Side, hardware: str, column: str) -> Sequence[object]:
    if column not in side.trials.columns:
        return ()
    return side.trials.filter(pl.col("hardware") == hardware, pl.col("status") == "ok")[column].to_list()


def _differing(hardware: str, name: str, sides: Sequence[tuple[str, ...]]) -> Iterator[Difference]:
    old, new = sides
    if old != new:
        yield Difference(hardware=hardware, what=name, old=old, new=new)


def _words(values: object) -> tuple[str, ...]:
    """The values that are known, each once, sorted."""
    assert hasattr(values, "__iter__"), "several values"
    return tuple(sorted({str(value) for value in values if value}))


def _gib(size_bytes: int) -> str | None:
    return f"{round(size_bytes / _GIB)} GiB" if size_bytes else None


def _watts(power_w: float) -> str | None:
    return f"{power_w:g} W" if power_w else None
