"""Checkpoint of a model on a node: its config.json, and what its files of weights hold, by their headers alone.

A safetensors file begins with a table of its tensors, so that all of a model is known from a few megabytes. Tensors of
equal layers are one row: the layer's number and the expert's are `*` in their name.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, Mapping, Sequence

from tokenpeak.node.engine import models
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.protocol.parts import Checkpoint, Tensors

CONFIG_BYTES = 1 << 20
_TABLE_BYTES = 64 << 20
"""Of one file: the largest models' have some megabytes."""
_MOST_FILES = 2000
_MOST_ROWS = 4000
_LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)|(?<=\bh\.)\d+(?=\.)")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def read_checkpoint(build: Json, model: str, env: Mapping[str, str], user: str | None) -> Checkpoint | None:
    """The model as its folder on the node has it; None where it is not there or cannot be read.

    Read with the engine's rights, where this script has more.
    """
    try:
        folder = models.folder_on_node(build, model, env, (), user)
        if folder is None:
            return None
        raw = models.as_engine(user, lambda: _read(folder))
    except (OSError, KeyError, ScriptError, ValueError):
        return None
    rows = [
        Tensors(name=name, dtype=dtype, count=each[0], values=each[1], bytes=each[2]) for (name, dtype), each in raw[1]
    ]
    return Checkpoint(model=model, config=raw[0], tensors=tuple(rows))


def _read(folder: Path) -> tuple[str, list[tuple[tuple[str, str], list[int]]]]:
    config = _beginning(folder / "config.json", CONFIG_BYTES).decode()
    layers = _layers(json.loads(config))
    rows: dict[tuple[str, str], list[int]] = {}
    files = sorted(folder.glob("*.safetensors"))
    for path in files if len(files) <= _MOST_FILES else ():
        for name, tensor in table_of(path).items():
            begin, end = tensor["data_offsets"]
            values = 1
            for side in tensor["shape"]:
                values *= int(side)
            row = rows.setdefault((_pattern(name, layers), str(tensor["dtype"])), [0, 0, 0])
            row[0] += 1
            row[1] += values
            row[2] += int(end) - int(begin)
    return config, sorted(rows.items())[:_MOST_ROWS]


def table_of(path: Path) -> Mapping[str, Any]:
    """The tensors of a safetensors file, each with dtype, shape and data_offsets.

    Raises ValueError for a file that is none. Source: the format's README: eight bytes of length, little-endian, and so
    many of JSON.
    """
    length = int.from_bytes(_beginning(path, 8), "little")
    if not 0 < length <= _TABLE_BYTES:
        raise ValueError(f"{path} has a table of {length} bytes")
    table = json.loads(_beginning(path, 8 + length)[8:])
    if not isinstance(table, dict):
        raise ValueError(f"{path} has no table of tensors")
    return {name: each for name, each in table.items() if name != "__metadata__"}


def _beginning(path: Path, size: int) -> bytes:
    """At most so many bytes that a regular file begins with."""
    with os.fdopen(os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError(f"{path} is no file")
        return stream.read(size)


def _layers(config: Any) -> int | None:
    """Layers of the decoder, as its config.json says."""
    places: Sequence[Any] = (config, *(config.get(key) for key in ("text_config", "llm_config", "thinker_config")))
    for place in places:
        for key in ("num_hidden_layers", "n_layer", "num_layers"):
            if isinstance(place, dict) and isinstance(place.get(key), int):
                return int(place[key])
    return None


def _pattern(name: str, layers: int | None) -> str:
    """A tensor's name with `*` for the numbers of layers and experts, and `+` for layers behind the decoder's last."""
    layer = _LAYER.search(name)
    beyond = layer is not None and layers is not None and int(layer[0]) >= layers
    named = _LAYER.sub("+", name, count=1) if beyond else name
    return _NUMBER.sub("*", named)
