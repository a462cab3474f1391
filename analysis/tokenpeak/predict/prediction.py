"""Prediction of a config's speed before its launch: a run played step by step, with its limit and its uncertainty.

TTFT, TPOT and throughput are those of the run as it will be recorded, its start and its end included. The limit is the
same run in steady state on ideal hardware: full bandwidth and arithmetic, nothing else.
"""

import math
from dataclasses import dataclass, replace

from tokenpeak.predict.demand import Demand
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.physics import StepTime, request_s, step_time_s
from tokenpeak.predict.played_run import OPEN_AT_MOST, Rank, play
from tokenpeak.records import Prediction
from tokenpeak.spec.slo import Slo

UNCERTAINTY = 0.45
"""Half-width of the 80% interval before any trial was seen: across devices and engine versions a roofline of this kind
is off by this much; hosts, kernels and clocks are not in it."""

DRAFT_UNCERTAINTY = 0.75
"""The same with drafts, whose luck is not known."""

STATE_UNCERTAINTY = 1.0
"""The same of models with layers that keep a state: no measured row has one."""

GUESS_UNCERTAINTY = 2.0
"""The same of a board that is taken for another of its generation."""

CPU_UNCERTAINTY = 19.0
"""The same of the CPU engine, whose cores are known by their number alone: a small model on two busy cores had a
twentieth of what was predicted. The first launch sets the scale."""

ACCEPTANCE = 0.7
"""Share of drafted tokens that the model accepts, each given that those before it were: chat with a trained draft.
What was really accepted is in the engine's counters after a run."""

SEARCHED_REQUESTS = 1000
"""At the rate that a search finds."""

IDLE_REQUESTS = 5
"""Played one at a time to know what an engine without other work would do."""

RATE_STEP = 1 / 64
"""Share of the highest rate within which the rate of an SLO is predicted."""
PLAYED = ("ttft_s", "tpot_s", "latency_s")
"""The metrics with limits that are predicted."""


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """The prediction of one run; seconds and tokens per second of all requests together."""

    running: float
    """Sequences in flight."""
    step: StepTime
    """A decode step with them."""
    prefill_s: float
    """Time that one prompt's prefill adds to a step."""
    ttft_s: float
    tpot_s: float
    output_tok_per_s: float
    kv_short: bool
    """The KV cache, not the load or max_num_seqs, limits the sequences in flight."""
    saturated: bool
    """Requests come faster than they can be served."""

    def latency_s(self, output_tokens: float) -> float:
        """From sent to last token."""
        return self.ttft_s + max(0.0, output_tokens - 1) * self.tpot_s


def _decode(deployment: Deployment, sequences: float, context_tokens: float, draft_tokens: int) -> StepTime:
    """A decode step of `sequences`, each with `context_tokens` and drafts to verify; pipeline stages share them out."""
    share = max(1, round(sequences / deployment.pipeline_parallel))
    return step_time_s(
        deployment,
        prefill_tokens=share * draft_tokens,
        prefill_sequences=share,
        decode_sequences=share,
        decode_context_tokens=round(share * context_tokens),
    )


def _sequences_at_most(memory: MemoryPlan, demand: Demand) -> tuple[float, bool]:
    """The most sequences in flight that engine and KV cache allow, and whether the cache is what limits them."""
    deployment = memory.deployment
    model = deployment.model
    middle = int(demand.input_tokens + demand.output_tokens / 2)
    each = model.kv_bytes_of_sequence(middle, deployment.kv_dtype, deployment.tensor_parallel)
    each /= deployment.pipeline_parallel
    shared = demand.prefix_hit_rate * demand.input_tokens if memory.prefix_caching else 0.0
    each *= max(0.2, 1 - 0.5 * shared / max(1, middle))
    room = max(1.0, memory.kv_cache_bytes / each)
    seats = float(deployment.max_num_seqs)
    return min(seats, room), room < seats


def tokens_per_step(memory: MemoryPlan) -> float:
    """Tokens that a sequence gains in a step: one, and the drafts accepted in a row."""
    return sum(ACCEPTANCE**position for position in range(memory.draft_tokens + 1))


def _new_tokens(memory: MemoryPlan, demand: Demand) -> float:
    """Of a prompt, those that the prefix cache does not hold."""
    return max(1.0, demand.input_tokens * (1 - (demand.prefix_hit_rate if memory.prefix_caching else 0.0)))


def _rank(memory: MemoryPlan, demand: Demand, running: float) -> Rank:
    """The rank that plays the run; what does not change its steps is left out, so that like configs are played once.

    Expert layers wait for all ranks, so that a step is as long as that of the rank with a prompt; a rank without work
    makes empty steps. Source: 0.32.0 v1/engine/core.py 2157 and 2345-2363 (DPEngineCoreProc.run_busy_loop).
    """
    deployment, seats = memory.deployment, max(1, math.floor(running))
    step = _decode(deployment, seats, demand.input_tokens + demand.output_tokens / 2, memory.draft_tokens)
    budget = max(1.0, deployment.max_num_batched_tokens - seats)
    own = min(1.0, seats * math.ceil(_new_tokens(memory, demand) / budget) / max(1.0, demand.output_tokens))
    anywhere = 1.0 - (1.0 - own) ** deployment.expert_ranks
    return Rank(
        deployment=replace(deployment, max_num_seqs=seats, graph_sizes=0, graphs_reserved=False, second_runner=False),
        seats=seats,
        chunked_prefill=memory.chunked_prefill,
        draft_tokens=memory.draft_tokens,
        tokens_per_step=tokens_per_step(memory),
        drafting_s=memory.draft_tokens * memory.draft_share * step.weights_s,
        cached=demand.prefix_hit_rate if memory.prefix_caching else 0.0,
        stalls=anywhere / own,
        prefill_share=own / anywhere,
    )


def _prefill_s(rank: Rank, demand: Demand, decoding: float) -> float:
    """Time that one prompt adds to the steps in which it is prefilled, in chunks of what the batch has left."""
    deployment, cached = rank.deployment, demand.input_tokens * rank.cached
    new, sequences = max(1.0, demand.input_tokens - cached), max(1, round(decoding / deployment.pipeline_parallel))
    chunks = math.ceil(new / max(1.0, deployment.max_num_batched_tokens - decoding)) if rank.chunked_prefill else 1
    context = round(sequences * (demand.input_tokens + demand.output_tokens / 2))
    without = step_time_s(deployment, decode_sequences=sequences, decode_context_tokens=context).total_s
    return sum(
        step_time_s(
            deployment,
            prefill_tokens=max(1, round(new / chunks)),
            prefill_context_tokens=round(cached + new * chunk / chunks),
            decode_sequences=sequences,
            decode_context_tokens=context,
            prefill_share=rank.prefill_share,
        ).total_s
        - without
        for chunk in range(chunks)
    )


def steady_state(memory: MemoryPlan, demand: Demand) -> SteadyState:
    """The run of `demand` on a deployment that fits its memory; data-parallel ranks share it out evenly.

    A search is predicted at the highest rate that should hold; where none should, by a request on its own.
    """
    search = demand.search if demand.rate_per_s is None else None
    if search is not None:
        rate = slo_rate_per_s(memory, demand, search.max_rate_under)
        demand = replace(demand, requests=SEARCHED_REQUESTS, rate_per_s=rate or None)
    ranks = memory.data_parallel
    one = _of_rank(memory, _share(demand, ranks))
    whole = replace(one, running=one.running * ranks, output_tok_per_s=one.output_tok_per_s * ranks)
    if search is None or demand.rate_per_s is None:
        return whole
    # What a search records is the rate, not a run with a beginning and an end.
    return replace(whole, output_tok_per_s=demand.rate_per_s * demand.output_tokens)


def _share(demand: Demand, ranks: int) -> Demand:
    """Demand on each of `ranks`."""
    demand = replace(demand, search=None)
    if ranks == 1:
        return demand
    return replace(
        demand,
        concurrency=None if demand.concurrency is None else -(-demand.concurrency // ranks),
        requests=None if demand.requests is None else -(-demand.requests // ranks),
        warmup_requests=-(-demand.warmup_requests // ranks),
        rate_per_s=None if demand.rate_per_s is None else demand.rate_per_s / ranks,
    )


def _of_rank(memory: MemoryPlan, demand: Demand) -> SteadyState:
    """The same of one rank."""
    seats, kv_short = _sequences_at_most(memory, demand)
    rate, in_flight = demand.rate_per_s, float(demand.concurrency or (1 if demand.rate_per_s is None else math.inf))
    most = min(seats, in_flight)
    rank = _rank(memory, demand, most)
    played = play(rank, demand)
    ttft_s, running, saturated = played.ttft_s["mean"], most, False
    if rate is not None:
        highest = most_per_s(rank, demand)
        saturated = rate >= highest
        running = most if saturated else max(1.0, min(most, rate * played.latency_s["mean"]))
        waiting = (demand.requests or rate * (demand.duration_s or 60.0)) - OPEN_AT_MOST
        if saturated and waiting > 0:
            ttft_s += waiting / 2 * (1 / highest - 1 / rate)
    step = _decode(memory.deployment, running, demand.input_tokens + demand.output_tokens / 2, memory.draft_tokens)
    return SteadyState(
        running=running,
        step=step,
        prefill_s=_prefill_s(rank, demand, running),
        ttft_s=ttft_s,
        tpot_s=played.tpot_s.get("mean", step.total_s),
        output_tok_per_s=played.output_tok_per_s,
        kv_short=kv_short and running >= seats,
        saturated=saturated,
    )


def most_per_s(rank: Rank, demand: Demand) -> float:
    """Requests that a rank serves per second when they never fail to come.

    Each step gives a token to all that decode, and as many prompts as sequences end are prefilled in it; that many at
    most as seats are free and the batch has room for. Where it is less than one prompt a step, only some have one.
    """
    deployment, gain = rank.deployment, rank.tokens_per_step
    cached = demand.input_tokens * rank.cached
    new, steps = max(1.0, demand.input_tokens - cached), max(0.0, demand.output_tokens - 1) / gain
    ends = min(rank.seats / (steps + 1), deployment.max_num_batched_tokens / (new + steps))
    decoding = ends * steps
    chunks = math.ceil(new / max(1.0, deployment.max_num_batched_tokens - decoding)) if rank.chunked_prefill else 1
    having = min(1.0, ends * chunks)
    share = max(1, round(decoding / deployment.pipeline_parallel)) if decoding >= 0.5 else 0
    decodes = {
        "decode_sequences": share,
        "decode_context_tokens": round(share * (demand.input_tokens + demand.output_tokens / 2)),
    }
    without_s = step_time_s(deployment, **decodes).total_s
    alone = not rank.chunked_prefill and not deployment.v1
    with_s = step_time_s(
        deployment,
        prefill_tokens=max(1, round(ends * new / having)),
        prefill_context_tokens=round(ends / having * (cached + new * (chunks - 1) / 2)),
        prefill_sequences=max(1, round(ends / having)),
        prefill_share=rank.prefill_share,
        **({} if alone else decodes),
    ).total_s
    added_s = (with_s - (0.0 if alone else without_s)) * rank.stalls
    step_s = without_s + having * added_s + (rank.drafting_s if decoding else 0.0)
    return min(ends / step_s, 1 / request_s(demand.input_tokens))


def decode_bytes(deployment: Deployment, demand: Demand, sequences: float) -> float:
    """Bytes of weights and KV cache that one decode step reads, on all devices of one data-parallel rank."""
    model = deployment.model
    matrices = deployment.matrix_bytes_read(round(sequences))
    context = round(demand.input_tokens + demand.output_tokens / 2)
    kv_cache = sequences * model.kv_bytes_of_sequence(context, deployment.kv_dtype)
    return matrices + model.output_matrix_parameters * deployment.value_bytes + kv_cache


def hardware_limit_tok_per_s(memory: MemoryPlan, demand: Demand) -> float:
    """The most output tokens per second that the devices could give for this run.

    Each byte at the full bandwidth while each operation runs at the full rate, so that the longer of the two counts:
    chunks of prompts are multiplied while the decodes read. No exchange, no launch and no scheduling; never more than
    a rate asks for.
    """
    deployment = memory.deployment
    gpu, model = deployment.gpu, deployment.model
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    replicas = memory.data_parallel
    seats, _ = _sequences_at_most(memory, demand)
    running = max(1.0, min(seats, (demand.concurrency or math.inf) / replicas))
    output = max(1.0, demand.output_tokens)
    hits = demand.prefix_hit_rate if memory.prefix_caching else 0.0
    steps = output / (memory.draft_tokens + 1)
    read_s = steps * decode_bytes(deployment, demand, running) / (gpu.memory_bytes_per_s * devices)
    # What a prompt's tokens and the answer's are multiplied by; a prompt samples one token.
    prompt = demand.input_tokens * (1 - hits)
    flops = 2 * running * (model.active_linear_parameters * (prompt + output) + model.output_matrix_parameters * output)
    multiplied_s = flops / (deployment.compute_flops * devices)
    limit = replicas * running * output / max(read_s, multiplied_s)
    return min(limit, demand.rate_per_s * output) if demand.rate_per_s else limit


def predict(memory: MemoryPlan, demand: Demand) -> Prediction:
    """The prediction of one config for one run."""
    state = steady_state(memory, demand)
    return Prediction(
        output_tok_per_s=state.output_tok_per_s,
        ttft_s=state.ttft_s,
        tpot_s=state.tpot_s,
        kv_cache_tokens=memory.kv_cache_tokens,
        binding=binding(memory, demand, state),
        limit_output_tok_per_s=hardware_limit_tok_per_s(memory, demand),
        uncertainty=_uncertainty(memory),
        draft_accepted_length=tokens_per_step(memory) if memory.draft_tokens else None,
    )


def prediction_of(memory: MemoryPlan | None, demand: Demand) -> Prediction | None:
    """The same where memory is known and enough, and the run is of a model that generates; else None."""
    return predict(memory, demand) if memory and memory.fits and demand.generates else None


def _uncertainty(memory: MemoryPlan) -> float:
    """Half-width of the 80% interval, by what was measured of such a device and such a model."""
    if memory.deployment.gpu.vendor == "cpu":
        return CPU_UNCERTAINTY
    if memory.deployment.gpu.taken_for is not None:
        return GUESS_UNCERTAINTY
    if any(each.state is not None for each in memory.deployment.model.kept):
        return STATE_UNCERTAINTY
    return DRAFT_UNCERTAINTY if memory.draft_tokens else UNCERTAINTY


def interval_words(uncertainty: float | None) -> str:
    """An interval of a prediction from its half-width as a ratio: `±45%`, or `a factor of 20`."""
    if uncertainty is None:
        return "–"
    return f"±{uncertainty:.0%}" if uncertainty < 1 else f"a factor of {1 + uncertainty:.2g}"


def binding(memory: MemoryPlan, demand: Demand, state: SteadyState) -> str:
    """Limit of the run: too few sequences for want of KV cache, else whichever resource most of its time goes to."""
    if state.kv_short:
        return "kv_capacity"
    prefill = state.running * state.prefill_s
    if prefill > max(1.0, demand.output_tokens) * state.step.total_s:
        return "compute"
    return state.step.binding


def slo_rate_per_s(memory: MemoryPlan, demand: Demand, slo: Slo) -> float | None:
    """The highest request rate at which every limit of the SLO should hold: None without limits, 0.0 if none holds."""
    limits = [(metric, quantile, limit) for metric, quantile, limit in slo.limits() if metric in PLAYED]
    if not limits:
        return None
    ranks = memory.data_parallel
    share = replace(_share(demand, ranks), requests=OPEN_AT_MOST, warmup_requests=0, concurrency=None)
    seats, _ = _sequences_at_most(memory, share)
    rank = _rank(memory, share, seats)
    highest = most_per_s(rank, share)

    def holds(rate: float) -> bool:
        played = play(rank, replace(share, rate_per_s=rate))
        metrics = {"ttft_s": played.ttft_s, "tpot_s": played.tpot_s, "latency_s": played.latency_s}
        return all(metrics[metric].get(quantile, 0.0) <= limit for metric, quantile, limit in limits)

    # Beyond the highest rate no SLO holds for long; the search ends within a share of it.
    low, high = 0.0, highest
    if holds(highest * (1 - RATE_STEP)):
        return highest * (1 - RATE_STEP) * ranks
    while high - low > RATE_STEP * highest:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low * ranks


def excess_when_idle(memory: MemoryPlan, demand: Demand, slo: Slo) -> float | None:
    """How many times its limit the worst latency of requests one at a time is; above 1 no rate holds the SLO.

    None without limits that are predicted.
    """
    share = replace(
        _share(demand, 1), requests=IDLE_REQUESTS, warmup_requests=0, concurrency=1, rate_per_s=None, search=None
    )
    seats, _ = _sequences_at_most(memory, share)
    played = play(_rank(memory, share, seats), share)
    metrics = {"ttft_s": played.ttft_s, "tpot_s": played.tpot_s, "latency_s": played.latency_s}
    limits = [each for each in slo.limits() if each[0] in metrics]
    return max((metrics[metric].get(quantile, 0.0) / limit for metric, quantile, limit in limits), default=None)
