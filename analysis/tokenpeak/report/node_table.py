"""Table of a sweep's nodes: GPUs, memory, processors and links of each."""

from typing import Any

import polars as pl

from tokenpeak.predict.hardware import GIB, gpu_facts
from tokenpeak.records import Gpu, NodeFacts
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.view import SweepView

_NODE = {
    "node": pl.String,
    "hardware": pl.String,
    "gpus": pl.Int64,
    "vram_gib": pl.Float64,
    "cpu_cores": pl.Int64,
    "memory_gib": pl.Float64,
    "interconnect": pl.String,
}


def nodes_table(view: SweepView) -> Table:
    """What each node is made of; a board whose memory nobody gives has that of its kind."""
    frame = pl.DataFrame([_node(node, view.record.hardware_of(node)) for node in view.record.nodes], schema=_NODE)
    return table(
        frame,
        [
            Column(key="node", title="Node", kind="code"),
            Column(key="hardware", title="Hardware"),
            Column(key="gpus", title="GPUs", kind="number"),
            *(
                Column(key=key, title=title, unit=unit, kind="number", digits=digits)
                for key, title, unit, digits in (
                    ("vram_gib", "VRAM", "GiB", 0),
                    ("cpu_cores", "CPU cores", "", None),
                    ("memory_gib", "Memory", "GiB", 0),
                )
                if frame[key].is_not_null().any()
            ),
            *([Column(key="interconnect", title="Links")] if frame["interconnect"].is_not_null().any() else []),
        ],
        name="nodes",
        title="The nodes",
        note="VRAM is that of all GPUs of a node.",
    )


def _node(node: NodeFacts, hardware: str) -> dict[str, Any]:
    boards = [_vram_bytes(gpu) for gpu in node.gpus]
    return {
        "node": node.node,
        "hardware": hardware,
        "gpus": len(node.gpus),
        "vram_gib": sum(filter(None, boards)) / GIB if boards and None not in boards else None,
        "cpu_cores": node.cpu_cores,
        "memory_gib": node.memory_bytes / GIB if node.memory_bytes is not None else None,
        "interconnect": node.interconnect,
    }


def _vram_bytes(gpu: Gpu) -> int | None:
    facts = gpu_facts(gpu.name) if gpu.vram_bytes is None else None
    return facts.vram_bytes if facts is not None else gpu.vram_bytes
