"""Prometheus metrics of sweeps, as `tokenpeak serve` gives them at /metrics: read from the archives, at each scrape.

Alert rules on them are in analysis/examples/alerts.yml.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from tokenpeak.errors import ArchiveError
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.store.archive import Archive, find_archives

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SHOWN_FOR = timedelta(days=7)
"""How long a sweep that has ended is still shown."""
OF_SWEEPS = {
    "running": "No end is recorded: the sweep runs, or its controller died.",
    "interrupted": "The sweep ended before all its trials were made.",
    "trials": "Trials recorded.",
    "problems": "What went wrong, in how many sentences of the sweep's end.",
    "started_timestamp_seconds": "When it began.",
    "written_timestamp_seconds": "When its archive was last written to.",
    "ended_timestamp_seconds": "When its controller left it.",
}
OF_NODES = {
    "production_downtime_seconds": "How long production of the node did not serve for the sweep.",
    "production_not_back": "Production of the node was not seen to serve again when the sweep ended.",
    "node_left_out": "The node failed so often in a row that the sweep went on without it.",
}


def exposition(paths: Sequence[Path], *, node_names: bool) -> bytes:
    """The metrics of the sweeps at or below the paths, in Prometheus' text format; nodes are numbered unless named."""
    registry = CollectorRegistry()
    registry.register(_Sweeps(paths, node_names=node_names))
    return generate_latest(registry)


class _Sweeps(Collector):
    def __init__(self, paths: Sequence[Path], *, node_names: bool) -> None:
        self._paths = paths
        self._node_names = node_names

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing, so that registering reads no archive."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Each metric with a sample for each sweep, or node of it."""
        sweeps = {
            name: GaugeMetricFamily(f"tokenpeak_sweep_{name}", says, labels=["sweep", "name", "inventory"])
            for name, says in OF_SWEEPS.items()
        }
        nodes = {
            name: GaugeMetricFamily(f"tokenpeak_sweep_{name}", says, labels=["sweep", "inventory", "node"])
            for name, says in OF_NODES.items()
        }
        for archive, record, end in self._recent():
            labels = [record.sweep_id, record.name, record.inventory]
            for name, value in _of_sweep(archive, record, end).items():
                sweeps[name].add_metric(labels, value)
            if end is None:
                continue
            for number, node in enumerate(record.nodes, start=1):
                shown = node.node if self._node_names else f"node {number}"
                for name, of_node in _OF_NODE.items():
                    nodes[name].add_metric([record.sweep_id, record.inventory, shown], of_node(end, node.node))
        yield from (*sweeps.values(), *nodes.values())

    def _recent(self) -> Iterator[tuple[Archive, SweepRecord, EndRecord | None]]:
        """The sweeps that run or ended not long ago; an archive that cannot be read now is left out."""
        try:
            archives = find_archives(list(self._paths))
        except ArchiveError:
            return
        for archive in archives:
            try:
                record, end = archive.read_sweep(), archive.read_end()
            except ArchiveError:
                continue
            is_recent = end is None or datetime.now(UTC) - end.ended_at < SHOWN_FOR
            if record.imported is None and is_recent:
                yield archive, record, end


_OF_NODE: dict[str, Callable[[EndRecord, str], float]] = {
    "production_downtime_seconds": lambda end, node: end.production_downtime_s.get(node, 0.0),
    "production_not_back": lambda end, node: float(node in end.unrestored),
    "node_left_out": lambda end, node: float(node in end.left_out_nodes),
}


def _of_sweep(archive: Archive, record: SweepRecord, end: EndRecord | None) -> dict[str, float]:
    """The values of OF_SWEEPS that are known."""
    trials = [path for path in (archive.path / "trials").glob("*.json") if not path.name.startswith(".")]
    written = [path.stat().st_mtime for path in (archive.path / "sweep.json", *trials) if path.exists()]
    known = {
        "running": float(end is None),
        "interrupted": float(end is not None and end.status == "interrupted"),
        "trials": float(len(trials)),
        "started_timestamp_seconds": record.started_at.timestamp(),
        "written_timestamp_seconds": max(written, default=record.started_at.timestamp()),
    }
    if end is not None:
        known |= {"problems": float(len(end.problems)), "ended_timestamp_seconds": end.ended_at.timestamp()}
    return known
