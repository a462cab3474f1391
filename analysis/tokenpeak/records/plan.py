"""Plan: the configs of one kind of hardware, feasible with their predictions or dropped; a config is resolved."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

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


class Dropped(Record):
    """A config of the matrix that is not tried, with the rule that forbids it."""

    config: Config
    rule: str
    reason: str


class Prediction(Record):
    """The performance model's prediction of a config under the sweep's objective run; None where it has no figure."""

    output_tok_per_s: float | None = None
    ttft_s: float | None = None
    """Mean over the requests, as `tpot_s` is."""
    tpot_s: float | None = None
    kv_cache_tokens: int | None = None
    binding: str | None = None
    """Its limit: weights_bandwidth, kv_bandwidth, compute, interconnect, launch_overhead, kv_capacity, client."""
    limit_output_tok_per_s: float | None = None
    """The most that the hardware could give for this workload."""
    uncertainty: float | None = None
    """Half-width of the 80% interval as a ratio: 0.3 is ±30%."""
    draft_accepted_length: float | None = None
    """Tokens of a step with a draft, as it was assumed; None without speculation. A run's counters say what it was."""


class PlannedConfig(Record):
    """A feasible config with its class and prediction. Configs of one class cannot differ under the workload."""

    config: Config
    config_class: str
    answers: str = ""
    """Identifies the settings that can change answers: configs with the same ones answer alike, but for rounding. Empty
    in archives written before it was recorded."""
    prediction: Prediction | None = None
    advice: tuple[str, ...] = ()


class Plan(Record):
    """The matrix of one kind of hardware: theoretical = feasible + dropped."""

    hardware: str
    """The label of `hardware_groups`."""
    gpus: int = 1
    """Of one of its nodes; 1 for a CPU."""
    nodes: tuple[str, ...]
    apart: tuple[str, ...] = ()
    """For each other kind of equal boards, what keeps its nodes out of this plan."""
    theoretical: int
    feasible: tuple[PlannedConfig, ...]
    dropped: tuple[Dropped, ...] = ()
    estimated_duration_s: float | None = None
    estimated_trial_s: float | None = None
    """Of one trial on a node, production's return included where each trial gives it back."""
    highest: str | None = None
    """The axis of which only the highest value is wanted that launches and survives the load. The search finds it
    first, by one config, and tries the others at that value alone."""

    @model_validator(mode="before")
    @classmethod
    def _gpus_of_older(cls, data: Any) -> Any:
        """A plan of an archive that has no `gpus` yet: its label begins with their number."""
        if not isinstance(data, dict) or "gpus" in data:
            return data
        match = re.match(r"(\d+)x ", str(data.get("hardware")))
        return {**data, "gpus": int(match[1]) if match else 1}
