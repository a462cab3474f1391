"""Plan: the feasible configs of one kind of hardware with their predictions, and the dropped ones."""

import re
from typing import Any

from pydantic import model_validator

from tokenpeak.records.base import Record
from tokenpeak.records.config import Config


class Dropped(Record):
    """A config of the matrix that is not tried, with the rule that forbids it."""

    config: Config
    rule: str
    reason: str


class Prediction(Record):
    """What the performance model predicts for a config under the sweep's objective run; None where it has no figure."""

    output_tok_per_s: float | None = None
    ttft_s: float | None = None
    """Mean over the requests, as `tpot_s` is."""
    tpot_s: float | None = None
    kv_cache_tokens: int | None = None
    binding: str | None = None
    """What limits it: weights_bandwidth, kv_bandwidth, compute, interconnect, launch_overhead, kv_capacity, client."""
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
        found = re.match(r"(\d+)x ", str(data.get("hardware")))
        return {**data, "gpus": int(found[1]) if found else 1}
