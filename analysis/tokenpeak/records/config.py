"""Config: one alternative of each axis on top of the fixed part, resolved."""

import hashlib
import json
import math
from collections.abc import Mapping

from tokenpeak.records.base import PathName, Record

GROUPS_OF_GPUS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Flags whose product is the number of GPUs that an engine takes."""


def config_hash(content: Mapping[str, object]) -> str:
    """The id of a config: 12 hex digits of the SHA-256 over `content` as canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


class ModelName(Record):
    """Which model a config serves, and under which name requests ask for it."""

    name: str
    revision: str | None = None
    served_name: str


class Config(Record):
    """One alternative of each axis on top of the fixed part, resolved.

    `config_id` is the config_hash of model, flags, env, engine version and, where it has one, engine build; `choices`
    maps each axis to the alternative's name and is empty for an extra config.
    """

    config_id: PathName
    name: str
    choices: dict[str, str] = {}
    model: ModelName
    flags: dict[str, bool | int | float | str | None] = {}
    env: dict[str, str] = {}
    engine_version: str | None = None
    engine: str | None = None
    """The name of the engine build that it is launched with; None: the one of the short form."""
    force: bool = False
    endpoint: str | None = None
    """The URL of a server that was measured as it stood; its flags and environment are then not known."""

    @property
    def gpus(self) -> int | None:
        """How many GPUs the engine takes, by the flags of its groups; None: of a server whose flags are not known."""
        groups = [self.flags.get(flag) for flag in GROUPS_OF_GPUS]
        sizes = [group for group in groups if isinstance(group, int) and group > 0]
        return None if self.endpoint is not None and not sizes else math.prod(sizes)
