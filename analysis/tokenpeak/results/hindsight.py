"""Hindsight of a sweep: errors of its predictions, the winner's share of the hardware's limit, and advice.

Pure: a plan, the facts of a node, and trials in; sentences out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.predict.correction import METRICS, errors, learn, observed
from tokenpeak.predict.demand import Demand, objective_demand, objective_run
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.predict.prediction import (
    binding,
    decode_bytes,
    hardware_limit_tok_per_s,
    interval_words,
    steady_state,
    tokens_per_step,
)
from tokenpeak.records import Config, NodeFacts, Plan, RunRecord, Series, TrialRecord
from tokenpeak.spec.sweep import SweepSpec

FULL, FREE = 0.95, 0.70
"""KV cache usage that counts as full, and as free."""
SHOWN = 3
"""How many corrected predictions and pieces of advice are shown."""

LONG = 0.3
"""Share of a run's samples that counts as long."""

STALL_RATIO = 5.0
"""A p99 gap between tokens this many times the median one is a stall."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A setting to try, and the figures that suggest it."""

    rule: str
    text: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class RunObservation:
    """One run with what is known of its config; the columns hold the run's own samples, None left out."""

    config: Config
    run: RunRecord
    memory: MemoryPlan | None
    running: tuple[float, ...]
    waiting: tuple[float, ...]
    kv_usage: tuple[float, ...]

    @property
    def seats(self) -> int | None:
        """max_num_seqs: as set, or the engine's default where it is known."""
        value = self.config.flags.get("max_num_seqs")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        return self.memory.deployment.max_num_seqs if self.memory else None


def observe(config: Config, run: RunRecord, series: Series, memory: MemoryPlan | None) -> RunObservation:
    """The samples of `run` cut out of its trial's series, warm-up left out; none where its window was not kept."""
    start, end = run.window_s or (math.inf, math.inf)

    def column(name: str) -> tuple[float, ...]:
        values = series.columns.get(name, ())
        inside = zip(series.t_s, values, strict=False)
        return tuple(value for t, value in inside if start <= t <= end and value is not None)

    return RunObservation(
        config=config,
        run=run,
        memory=memory,
        running=column("requests_running"),
        waiting=column("requests_waiting"),
        kv_usage=column("kv_cache_usage"),
    )


Words = tuple[str, str]
"""A setting to try, and the figures that suggest it."""


def _kv_full(seen: RunObservation) -> Words | None:
    long = sum(value > FULL for value in seen.kv_usage) / max(1, len(seen.kv_usage))
    if long < LONG:
        return None
    return (
        "Lower max_num_seqs, or give the KV cache more: gpu_memory_utilization up, kv_cache_dtype fp8, more GPUs",
        f"KV cache above {FULL:.0%} in {long:.0%} of the samples, {max(seen.kv_usage):.0%} at most",
    )


def _preempted(seen: RunObservation) -> Words | None:
    count = seen.run.engine.preemptions if seen.run.engine else None
    if not count:
        return None
    return (
        "Lower max_num_seqs or raise gpu_memory_utilization: what is preempted is computed again from its start",
        f"{count} preemptions in {seen.run.summary.requests_sent} requests",
    )


def _queues_with_kv_free(seen: RunObservation) -> bool:
    if not (seen.running and seen.waiting and seen.kv_usage and seen.seats):
        return False
    return fmean(seen.waiting) >= 1 and max(seen.kv_usage) <= FREE


def _seats_full(seen: RunObservation) -> Words | None:
    """Running at the limit with requests waiting and KV cache free: the limit itself is in the way."""
    if not _queues_with_kv_free(seen) or max(seen.running) < 0.95 * (seen.seats or 0):
        return None
    return (
        f"Raise max_num_seqs above {seen.seats}",
        f"{fmean(seen.waiting):.1f} requests waiting in the mean with {max(seen.running):.0f} running, "
        f"KV cache {max(seen.kv_usage):.0%} full at most",
    )


def _prompts_queue(seen: RunObservation) -> Words | None:
    """Waiting with seats and KV cache free: prompts wait for their share of the step's tokens."""
    if not _queues_with_kv_free(seen) or max(seen.running) >= 0.95 * (seen.seats or 0):
        return None
    return (
        "For sooner first tokens raise max_num_batched_tokens: prompts wait although sequences and KV cache are free",
        f"{fmean(seen.waiting):.1f} requests waiting in the mean, {max(seen.running):.0f} of {seen.seats} running, "
        f"KV cache {max(seen.kv_usage):.0%} full at most",
    )


def _always_low(seen: RunObservation) -> Words | None:
    if not (seen.running and seen.seats and seen.waiting):
        return None
    if max(seen.running) > 0.25 * seen.seats or max(seen.waiting) > 0:
        return None
    return (
        "Offer more requests to see what this config can do; for this load "
        f"max_num_seqs = {max(1, seen.seats // 4)} would do and leave more memory to the KV cache",
        f"{max(seen.running):.0f} of {seen.seats} sequences running at most, none waiting",
    )


def _decode_starved(seen: RunObservation) -> Words | None:
    gaps = seen.run.summary.itl_s
    if not gaps.p50 or not gaps.p99 or gaps.p99 < STALL_RATIO * gaps.p50:
        return None
    return (
        "For steadier tokens lower max_num_batched_tokens (chunked prefill on): "
        "a long prompt then stalls the others for less time",
        f"p99 gap between tokens {gaps.p99 * 1000:.0f} ms, {gaps.p99 / gaps.p50:.0f} times the median",
    )


def _needlessly_eager(seen: RunObservation) -> Words | None:
    memory = seen.memory
    if memory is None or not memory.deployment.eager or memory.deployment.gpu.vendor == "cpu":
        return None
    with_graphs = replace(memory, deployment=replace(memory.deployment, eager=False))
    if not with_graphs.fits:
        return None
    return (
        "Try without enforce_eager: graphs take the host's launches out of each step",
        f"with graphs {with_graphs.kv_cache_tokens:,} of {memory.kv_cache_tokens:,} tokens are left",
    )


RULES: dict[str, Callable[[RunObservation], Words | None]] = {
    "kv_cache_full": _kv_full,
    "preemptions": _preempted,
    "queueing_with_kv_free": _seats_full,
    "prompts_queue": _prompts_queue,
    "running_low": _always_low,
    "prefill_starves_decode": _decode_starved,
    "eager_where_graphs_fit": _needlessly_eager,
}


def diagnose(config: Config, run: RunRecord, series: Series, memory: MemoryPlan | None = None) -> tuple[Advice, ...]:
    """Advice from the run, in the order of RULES; a rule whose figures were not recorded says nothing.

    None for a server that is not vLLM: the settings are vLLM's.
    """
    if not is_vllm(config.engine_version):
        return ()
    seen = observe(config, run, series, memory)
    return tuple(
        Advice(rule=name, text=words[0], evidence=words[1])
        for name, rule in RULES.items()
        if (words := rule(seen)) is not None
    )


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """Shares from 0 to 1 of what the data sheets state; a share above 1 means that the facts are wrong."""

    of_limit: float
    """Measured output tokens per second ÷ the most that ideal hardware would give for this run."""
    memory_bandwidth: float
    """Bytes of weights and KV cache that the decode steps must have read, per second ÷ bandwidth."""
    compute: float
    """Operations of all tokens, prompts too, per second ÷ dense rate (MFU)."""
    binding: str

    def sentence(self) -> str:
        """The shares in words."""
        return (
            f"{self.of_limit:.0%} of the hardware's limit (memory bandwidth {self.memory_bandwidth:.0%}, "
            f"compute {self.compute:.0%}); bound by {self.binding.replace('_', ' ')}"
        )


def utilization(
    memory: MemoryPlan, demand: Demand, output_tok_per_s: float, tpot_s: float | None = None
) -> Utilization:
    """The shares of a run that gave `output_tok_per_s`, with a token of a sequence every `tpot_s` if that was measured.

    By Little's law the two give how many sequences were being decoded in the mean. The engine's own gauge of what runs
    is read too seldom for that in a short run, and counts prompts.
    """
    deployment = memory.deployment
    gpu, model = deployment.gpu, deployment.model
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    state = steady_state(memory, demand)
    decoded = output_tok_per_s * tpot_s if tpot_s else state.running
    batch = max(1.0, decoded / memory.data_parallel)
    steps_per_s = output_tok_per_s / memory.data_parallel / batch / tokens_per_step(memory)
    hits = demand.prefix_hit_rate if memory.prefix_caching else 0.0
    prompts = demand.input_tokens * (1 - hits) / max(1.0, demand.output_tokens)
    flops_per_token = 2 * (model.active_linear_parameters * (1 + prompts) + model.output_matrix_parameters)
    return Utilization(
        of_limit=output_tok_per_s / hardware_limit_tok_per_s(memory, demand),
        memory_bandwidth=steps_per_s * decode_bytes(deployment, demand, batch) / (gpu.memory_bytes_per_s * devices),
        compute=output_tok_per_s / memory.data_parallel * flops_per_token / (deployment.compute_flops * devices),
        binding=binding(memory, demand, state),
    )


def hindsight_lines(
    spec: SweepSpec,
    plan: Plan,
    node: NodeFacts,
    trials: Sequence[TrialRecord],
    models: Mapping[str, ModelFacts | None],
) -> list[str]:
    """Lessons of the trials on nodes like `node`, in sentences; none without an objective run."""
    good = [trial for trial in trials if trial.hardware == plan.hardware and trial.status == "ok"]
    observations = [observation for trial in good if (observation := observed(trial, spec))]
    lines = [
        f"prediction of {error.metric}: measured ÷ predicted {error.median_ratio:.2f} in the median of {error.n}, "
        f"off by {error.mean_absolute_error:.0%}, {error.within_interval:.0%} inside the stated 80% interval"
        for error in errors(observations)
    ]
    runs = [(trial, run) for trial in good if (run := objective_run(trial.runs, spec))]
    if not runs:
        return [*lines, *_untried(spec, plan, trials)]
    best, run = max(runs, key=lambda pair: pair[1].summary.output_tok_per_s or 0.0)
    memory = plan_memory(best.config, node, models.get(best.config.model.name), best.config.engine_version)
    speed = run.summary.output_tok_per_s
    if memory is not None and memory.fits and speed:
        share = utilization(memory, objective_demand(spec), speed, run.summary.tpot_s.mean)
        lines.append(f"fastest ({best.config.name}): {share.sentence()}")
    lines += _untried(spec, plan, trials)
    advice = diagnose(best.config, run, best.series, memory)
    return lines + [f"advice: {each.text} ({each.evidence})" for each in advice[:SHOWN]]


def _untried(spec: SweepSpec, plan: Plan, trials: Sequence[TrialRecord]) -> list[str]:
    """The configs not tried that the corrected predictions rate highest."""
    same = [trial for trial in trials if trial.hardware == plan.hardware]
    tried = {trial.config.config_id for trial in same}
    learned = learn([observation for trial in same if (observation := observed(trial, spec))])
    if METRICS[0] not in learned.mean:
        return []
    left = [
        (learned.apply(planned.config, planned.prediction), planned.config.name)
        for planned in plan.feasible
        if planned.prediction is not None and planned.config.config_id not in tried
    ]
    left.sort(key=lambda pair: -(pair[0].output_tok_per_s or 0.0))
    return [
        f"not tried: {name}, predicted {predicted.output_tok_per_s or 0:,.0f} tok/s, "
        f"{interval_words(predicted.uncertainty)}"
        for predicted, name in left[:SHOWN]
    ]
