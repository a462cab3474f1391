"""Sweep record: its plans with their configs, what was asked and by which software; its end and its applies."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.node.protocol.parts import Phase, Restoration
from tokenpeak.records.base import FORMAT_VERSION, PathName, Record, spec_of
from tokenpeak.records.node import ModelName, NodeFacts

BakeStatus = Literal["passed", "slower", "failing", "not_judged"]
Despite = Literal["simulated", "interrupted", "shorter_context"]
"""Obstacles that an apply can go on with: results of simulated nodes on such nodes, a sweep that did not end, and
a context that is shorter than production's."""
GROUPS_OF_GPUS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Flags whose product is the number of GPUs that an engine takes."""


def config_hash(content: Mapping[str, object]) -> str:
    """The id of a config: 12 hex digits of the SHA-256 over `content` as canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


class Config(Record):
    """One alternative of each axis on top of the fixed part, resolved.

    `config_id` is the config_hash of model, flags, env, engine version and, where it has them, engine build and args;
    `choices` maps each axis to the alternative's name and is empty for an extra config.
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
    args: tuple[str, ...] = ()
    """Words behind the command of a server that is not vLLM. `engine_version` is that server's name then."""
    force: bool = False
    endpoint: str | None = None
    """The URL of a server that was measured as it stood; its flags and environment are then not known."""

    @property
    def gpus(self) -> int | None:
        """How many GPUs the engine takes, by the flags of its groups; None: of a server of which none are known."""
        groups = [self.flags.get(flag) for flag in GROUPS_OF_GPUS]
        sizes = [group for group in groups if isinstance(group, int) and group > 0]
        is_unknown = self.endpoint is not None or not is_vllm(self.engine_version)
        return None if is_unknown and not sizes else math.prod(sizes)


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


class Provenance(Record):
    """Which software made a record."""

    tokenpeak_version: str
    git_revision: str | None = None
    python: str
    packages: dict[str, str] = {}


class SourceFile(Record):
    """A file that an import was made from."""

    name: str
    sha256: str


class Imported(Record):
    """Where an archive's figures come from when TokenPeak did not measure them."""

    format: str
    """The format: vllm_bench, vllm_printed, vllm_sweep, auto_tune, sglang, sglang_printed, guidellm, aiperf, inferencex
    or table."""
    tool: str | None = None
    """The tool that measured, with its version where the files name it."""
    title: str | None = None
    publisher: str | None = None
    url: str | None = None
    published: str | None = None
    """Date of publication, as far as the source gives it."""
    measured: str | None = None
    """When it was measured, as far as the source gives it; None: not known, and every `started_at` is the import's."""
    files: tuple[SourceFile, ...] = ()
    mapping: dict[str, str] = {}
    """Field of this format → where its value is from."""
    differences: tuple[str, ...] = ()
    """Metrics that this source defines otherwise, with how."""
    unmapped: tuple[str, ...] = ()
    """Parts of the source that this format has no place for, with the reason where it is known."""
    unknown: tuple[str, ...] = ()
    """Facts that a reader would want and the source does not give."""
    cautions: tuple[str, ...] = ()
    """Warnings to read before taking a figure."""


class ProductionTraffic(Record):
    """What production was asked before its sweep, and how it answered: the source of the workloads from production."""

    node: str
    """The node with most requests; of others nothing is used."""
    seconds: float
    """How long its metrics were read; since its start, where that is the source."""
    source: Literal["observed", "since_start"]
    """observed: while metrics were read; since_start: from the counts since production's start, at an even rate."""
    requests: int
    rate_per_s: float
    burstiness: float | None
    """Shape of the gamma distribution of gaps; None: too few requests to say."""
    input_tokens: float
    """Mean tokens of a prompt."""
    output_tokens: float
    """Mean tokens of an answer."""
    prefix_hit_rate: float | None
    """Share of prompt tokens that production's prefix cache served; None: it counts none."""
    lengths_together: bool
    """Whether prompts and answers were seen together; else each length is drawn by itself."""
    ttft_s: tuple[tuple[float, float], ...]
    """Production's own TTFT: bounds of its histogram, and the share of requests up to each."""
    tpot_s: tuple[tuple[float, float], ...]
    """Likewise its TPOT."""


class SweepRecord(Record):
    """The plan of a sweep, written before its first trial."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    name: str
    inventory: PathName
    started_at: datetime
    simulated: bool
    study: str | None = None
    spec: Annotated[dict[str, object], BeforeValidator(spec_of)]
    """The spec as given, every default filled in; parse with plan.spec.parse_spec."""
    nodes: tuple[NodeFacts, ...]
    plans: tuple[Plan, ...]
    provenance: Provenance
    load_hosts: tuple[str, ...] = ()
    """Who offered the load; empty: the controller did."""
    production_traffic: ProductionTraffic | None = None
    """None: no workload of this sweep is from production."""
    calibration: dict[str, object] | None = None
    """`calibrations`: what `tokenpeak calibrate` had found the load client able to measure on this sweep's network
    paths; None: nothing was on record for them."""
    imported: Imported | None = None
    """None: measured by TokenPeak itself."""

    def hardware_of(self, node: NodeFacts) -> str:
        """The label of the node's kind of hardware in this sweep."""
        return next((plan.hardware for plan in self.plans if node.node in plan.nodes), node.hardware)

    def gpus_used(self, config: Config, hardware: str) -> int | None:
        """How many GPUs the config's engine takes; None: the node has none, or neither flags nor node are known.

        An import that does not give the flags, and a server other than vLLM, are taken to use all of their node.
        """
        nodes = [node for node in self.nodes if self.hardware_of(node) == hardware]
        there = len(nodes[0].gpus) if nodes else None
        named = any(config.flags.get(flag) is not None for flag in GROUPS_OF_GPUS)
        if (self.imported is not None or config.gpus is None) and not named:
            return there or None
        return config.gpus if there is None else min(config.gpus or 1, there) or None


class EndRecord(Record):
    """How a sweep stands when its controller left it."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    status: Literal["completed", "interrupted"]
    ended_at: datetime
    trials: int
    production_downtime_s: dict[str, float] = {}
    """Seconds that each node's production did not serve."""
    open_downtime_s: dict[str, float] = {}
    """The part of it that belongs to an outage whose end was not seen: at least so long, as far as was known."""
    unrestored: tuple[str, ...] = ()
    """Nodes whose production was not seen to serve again."""
    left_out_nodes: tuple[str, ...] = ()
    """Nodes that failed so often in a row that the sweep went on without them."""
    problems: tuple[str, ...] = ()


class ProductionDefinition(Record):
    """A definition of production: its checksum, and what it says less what may be secret."""

    sha256: str
    text: str


class BakeFigure(Record):
    """One figure of production after an apply against the same time before; bounds of the ratio hold at 99.9%."""

    name: Literal["ttft_mean", "ttft_tail", "tpot_mean", "tpot_tail", "failed"]
    """Means in seconds; tails: the share of requests beyond the slowest tenth's bound of before; failed: a share."""
    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None
    n_before: float
    n_after: float


class Bake(Record):
    """Judgement of an apply by production's own metrics; not judged: too little traffic, or another kind of it."""

    status: BakeStatus
    reason: str
    figures: tuple[BakeFigure, ...] = ()
    before_s: float
    after_s: float
    test_load: int = 0
    """Connections of the test load; 0: clients' requests alone."""


class ApplyRecord(Record):
    """An apply on one node, or its rollback, whatever came of it."""

    format_version: int = FORMAT_VERSION
    apply_id: PathName
    kind: Literal["apply", "rollback"]
    sweep_id: PathName
    """By whose result; of a rollback, by whose the apply was."""
    node: str
    config: Config | None
    """None of a rollback."""
    simulated: bool
    despite: tuple[Despite, ...] = ()
    """Obstacles that were declared to be none."""
    who: str
    """User and host of the controller."""
    started_at: datetime
    duration_s: float
    status: Literal["confirmed", "put_back", "not_begun", "unknown"]
    """unknown: the node was out of reach; it puts back by itself what was not confirmed."""
    failed_in: str | None = None
    message: str
    before: ProductionDefinition | None = None
    after: ProductionDefinition | None = None
    """As it was to be, where it was put back."""
    engine_version: str | None = None
    phases: tuple[Phase, ...] = ()
    downtime_s: float | None = None
    bake: Bake | None = None
    restoration: Restoration | None = None
    provenance: Provenance
