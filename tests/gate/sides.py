"""Sides of a gate made of drawn or recorded log values, in place of archives, for thousands of gates."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from tokenpeak.gate.side import Load, Side, SideConfig, SideLaunch, read_side
from tokenpeak.ranking.rank import figures_of

LANDSCAPES = Path(__file__).parents[2] / "analysis" / "landscapes"
Figures = Sequence[tuple[str, str, str]]
HARDWARE = "CPU AMD EPYC (2 cores)"


@cache
def _blank() -> Side:
    return read_side([LANDSCAPES / "landscape-cpu.tar.zst"])


def load_of(workload: str, level: str) -> Load:
    """The load of that name."""
    asked = json.dumps({"name": workload})
    return Load(
        workload=workload,
        level=level,
        definition=f'[{asked},{{"label":"{level}"}}]',
        figures=figures_of(asked, "open" if level.startswith("rate") else "closed", level),
    )


def side_of(
    name: str, figures: Figures, configs: Sequence[np.ndarray], nodes: Sequence[Sequence[str]] | None = None
) -> Side:
    """A side whose configs were launched with these log values: for each config launches × figures; nan: no figure.

    `nodes` are those of each config's launches; without them one node made all.
    """
    made = {}
    for number, values in enumerate(configs):
        launches = []
        for place, row in enumerate(values):
            runs: dict[Load, dict[str, object]] = {}
            for (workload, level, metric), value in zip(figures, row, strict=True):
                load = load_of(workload, level)
                assert metric in load.figures
                verdict = {"verdict": "valid", "well_measured": True, "verdict_codes": []}
                known = runs.setdefault(load, dict(verdict))
                known[metric] = None if np.isnan(value) else float(np.exp(value))
            launches.append(SideLaunch(node=nodes[number][place] if nodes else "node 1", fault=None, runs=runs))
        made[HARDWARE, f"config-{number}"] = SideConfig(
            hardware=HARDWARE,
            config_id=f"config-{number}",
            name=f"config {number}",
            same=f"config {number}",
            build=None,
            dropped=None,
            launches=launches,
            duration_s=[60.0] * len(launches),
        )
    blank = _blank()
    return Side(
        sweep_ids=(name,),
        simulated=False,
        spec=blank.spec,
        records=blank.records,
        configs=made,
        trials=blank.trials.select(pl.all()),
        cautions=(),
    )
