"""Chosen boards of a node: `tokenpeak_gpus`, or what tokenpeak_engine_env makes visible; all where neither says.

Boards count as nvidia-smi counts them, so the engine's CUDA does too (CUDA_DEVICE_ORDER=PCI_BUS_ID): by default it
counts the fastest first, and an index would mean another board.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Optional, Tuple

from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.probe import boards

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""By which an engine sees some boards alone."""
ORDER = "CUDA_DEVICE_ORDER"
"""By which CUDA counts them."""
Chosen = Optional[Tuple[str, ...]]
"""Indexes or UUIDs as declared; None: every board."""


def chosen_boards(declaration: Json) -> Chosen:
    """The boards that the declaration chooses."""
    listed = declaration.get("gpus")
    if listed is not None:
        return tuple(str(one) for one in listed)
    env = (declaration.get("engine") or {}).get("env") or {}
    visible = next((str(env[name]) for name in VISIBLE if env.get(name) not in (None, "")), None)
    return None if visible is None else tuple(word.strip() for word in visible.split(",") if word.strip())


def chosen_for_trial(state: State) -> Chosen:
    """The boards of the trial that has the node, else as declared; all where neither can be read."""
    record = records.read_if_possible(state)
    if record is not None and "gpus" in record:
        return None if record["gpus"] is None else tuple(record["gpus"])
    try:
        return chosen_boards(state.declaration())
    except ScriptError:
        return None


def environment(declaration: Json) -> dict[str, str]:
    """The variables by which the engine sees the chosen boards alone, and counts them as the node's tools do."""
    chosen = chosen_boards(declaration)
    if chosen is None:
        return {}
    listed_boards = ",".join(chosen)
    listed = dict.fromkeys(VISIBLE[:2], listed_boards) if declaration.get("gpus") is not None else {}
    return {ORDER: "PCI_BUS_ID", **listed}


def only(gpus: Iterable[dict[str, Any]], chosen: Chosen) -> list[dict[str, Any]]:
    """Those of the found boards that are chosen, in the order in which they were found."""
    return [gpu for gpu in gpus if chosen is None or any(_is(gpu, word) for word in chosen)]


def missing(gpus: list[dict[str, Any]], chosen: Chosen) -> list[str]:
    """Chosen boards that are not there."""
    return [word for word in chosen or () if not any(_is(gpu, word) for gpu in gpus)]


def indexes(chosen: Chosen) -> frozenset[int] | None:
    """The numbers of the chosen boards, asking NVIDIA's tool where they are named by their UUIDs; None: all."""
    if chosen is None:
        return None
    numbers = {int(word) for word in chosen if word.isdigit()}
    if len(numbers) < len(chosen):
        gpus = boards.parse_gpus(process.run(boards.query("gpu", boards.GPU_FIELDS)).out)
        numbers |= {gpu["index"] for gpu in only(gpus, chosen)}
    return frozenset(numbers)


def columns_of(row: dict[str, float], wanted: frozenset[int] | None) -> dict[str, float]:
    """A sample without the columns of boards that are not wanted."""
    if wanted is None:
        return row
    return {name: value for name, value in row.items() if _board(name) is None or _board(name) in wanted}


def _board(column: str) -> int | None:
    match = re.match(r"gpu(\d+)_", column)
    return int(match[1]) if match else None


def _is(gpu: dict[str, Any], word: str) -> bool:
    return word == str(gpu["index"]) or (not word.isdigit() and str(gpu.get("uuid") or "").startswith(word))
