"""Prediction of a config's speed before its launch: a roofline over the steps of the engine, with its uncertainty.

The steady state of a run is a cycle: each sequence in flight is prefilled once and then decoded one token a step, while
the others' prefills stall it. From the duration of those steps follow TPOT, throughput and, with the queue before the
engine, TTFT. The limit is the same cycle on ideal hardware: full bandwidth and arithmetic, nothing else.
"""

import math
from dataclasses import dataclass, replace

from tokenpeak.predict.demand import Demand
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.physics import Deployment, StepTime, step_time_s
from tokenpeak.records import Prediction
from tokenpeak.spec.workload import Slo

UNCERTAINTY = 0.45
"""Half-width of the 80% interval before any trial was seen: across devices and engine versions a roofline of this kind
is off by this much; hosts, kernels and clocks are not in it."""

CPU_UNCERTAINTY = 0.75
"""The same for the CPU engine, whose cores are known only by their number, and for drafts, whose luck is not known."""

ACCEPTANCE = 0.7
"""Share of drafted tokens that the model accepts, each given that those before it were: chat with a trained draft.
What was really accepted is in the engine's counters after a run."""

TAIL = {"p50": 0.9, "p75": 1.3, "p90": 1.9, "p95": 2.3, "p99": 3.2, "mean": 1.0}
"""A quantile of a waiting time as a multiple of its mean, between an exponential and a constant."""


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """The prediction of one run; seconds and tokens per second of all requests together."""

    running: float
    """Sequences in flight."""
    step: StepTime
    """A decode step with them."""
    prefill_s: float
    """What one prompt's prefill adds to a step."""
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


def _prefill_s(
    deployment: Deployment, prompts: int, tokens: float, cached: float, decoding: float, share: float = 1.0
) -> float:
    """The time that prefilling `prompts` prompts of `tokens` new tokens each adds, in chunks of the batch's size.

    `share` of the data-parallel ranks do so at the same time.
    """
    budget = max(1.0, deployment.max_num_batched_tokens - decoding)
    total = max(1.0, prompts * tokens)
    steps = math.ceil(total / budget)
    each = total / steps
    per_step = max(1, round(prompts / steps)) if tokens <= budget else 1
    elapsed = 0.0
    for index in range(steps):
        done = cached if tokens <= budget else cached + (index * each) % max(1.0, tokens)
        elapsed += step_time_s(
            deployment,
            prefill_tokens=max(1, round(each)),
            prefill_context_tokens=round(done * per_step),
            prefill_sequences=per_step,
            prefill_share=share,
        ).total_s
    return elapsed


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


@dataclass(frozen=True, kw_only=True)
class _Cycle:
    """What happens to each of `running` sequences, over and over."""

    running: float
    output: float
    step: StepTime
    token_s: float
    """Between tokens of one sequence while no other is prefilled; less than a step when drafts are accepted."""
    added_s: float
    """What one prompt's prefill adds to a step."""
    stalls: float
    """Steps that a prefill of any rank makes longer, for each one in which the own rank prefills."""

    @property
    def tpot_s(self) -> float:
        """Between tokens, others' prefills included."""
        return self.token_s + self.running * self.stalls * self.added_s / self.output

    @property
    def prompt_s(self) -> float:
        """A request's own prefill, and its share of the others' where they come more often than a token."""
        return self.added_s * max(1.0, self.running / self.output)

    @property
    def service_s(self) -> float:
        """From the first step of a request to its last."""
        return self.prompt_s + self.step.total_s + (self.output - 1) * self.tpot_s


def tokens_per_step(memory: MemoryPlan) -> float:
    """Tokens that a sequence gains in a step: one, and the drafts accepted in a row."""
    return sum(ACCEPTANCE**position for position in range(memory.draft_tokens + 1))


def _cycle(memory: MemoryPlan, demand: Demand, running: float) -> _Cycle:
    deployment = memory.deployment
    hits = demand.prefix_hit_rate if memory.prefix_caching else 0.0
    new, cached = demand.input_tokens * (1 - hits), demand.input_tokens * hits
    step = _decode(deployment, running, demand.input_tokens + demand.output_tokens / 2, memory.draft_tokens)
    own, anywhere = _prefilling(deployment, new, running, max(1.0, demand.output_tokens))
    added = _prefill_s(deployment, 1, new, cached, running, share=own / anywhere)
    added = max(0.0, added - step.scheduler_s - step.floor_s)
    if not deployment.eager and memory.chunked_prefill:
        # The weights are read once for the decodes and the chunk that travels with them.
        added = max(0.0, added - min(step.weights_s, added) * 0.5)
    drafting_s = memory.draft_tokens * memory.draft_share * step.weights_s
    return _Cycle(
        running=running,
        output=max(1.0, demand.output_tokens),
        step=step,
        token_s=(step.total_s + drafting_s) / tokens_per_step(memory),
        added_s=added,
        stalls=anywhere / own,
    )


def _prefilling(deployment: Deployment, tokens: float, running: float, output: float) -> tuple[float, float]:
    """Share of the steps in which one rank prefills, and in which any rank that shares its experts does.

    Expert layers wait for all ranks, so that a step is as long as that of the rank with a prompt; a rank without work
    makes empty steps. Source: 0.32.0 v1/engine/core.py 2157 and 2345-2363 (DPEngineCoreProc.run_busy_loop).
    """
    budget = max(1.0, deployment.max_num_batched_tokens - running)
    own = min(1.0, running * math.ceil(max(1.0, tokens) / budget) / output)
    return own, 1.0 - (1.0 - own) ** deployment.expert_ranks


def steady_state(memory: MemoryPlan, demand: Demand) -> SteadyState:
    """The run of `demand` on a deployment that fits its memory; data-parallel ranks share it out evenly.

    A search is predicted at the highest rate that should hold; where none should, by a request on its own.
    """
    if demand.search is not None and demand.rate_per_s is None:
        rate = slo_rate_per_s(memory, demand, demand.search.max_rate_under)
        demand = replace(demand, requests=demand.search.confirming_requests, rate_per_s=rate or None)
    ranks = memory.data_parallel
    if ranks > 1:
        demand = replace(
            demand,
            concurrency=None if demand.concurrency is None else -(-demand.concurrency // ranks),
            requests=None if demand.requests is None else -(-demand.requests // ranks),
            rate_per_s=None if demand.rate_per_s is None else demand.rate_per_s / ranks,
        )
    one = _closed(memory, demand) if demand.rate_per_s is None else _open(memory, demand, demand.rate_per_s)
    return replace(one, running=one.running * ranks, output_tok_per_s=one.output_tok_per_s * ranks)


def _closed(memory: MemoryPlan, demand: Demand) -> SteadyState:
    """A fixed number of requests in flight."""
    seats, kv_short = _sequences_at_most(memory, demand)
    asked = float(demand.concurrency or 1)
    cycle = _cycle(memory, demand, min(asked, seats))
    running, tpot, service = cycle.running, cycle.tpot_s, cycle.service_s
    ttft = cycle.step.total_s / 2 + cycle.prompt_s + cycle.step.scheduler_s
    if demand.fixed_lengths and (demand.requests or 0) + demand.warmup_requests <= 4 * asked:
        # Sent together and alike, they are prefilled together, decode together and end together.
        hits = demand.prefix_hit_rate if memory.prefix_caching else 0.0
        new, cached = demand.input_tokens * (1 - hits), demand.input_tokens * hits
        whole = _prefill_s(memory.deployment, math.ceil(running), new, cached, 0)
        steps = math.ceil(running * new / memory.deployment.max_num_batched_tokens)
        ttft = whole * (steps + 1) / (2 * steps)
        tpot = cycle.token_s + (whole - ttft) / cycle.output
        service = ttft + (cycle.output - 1) * tpot
    return SteadyState(
        running=running,
        step=cycle.step,
        prefill_s=cycle.added_s,
        ttft_s=ttft + (asked / running - 1) * service,
        tpot_s=tpot,
        output_tok_per_s=running * cycle.output / service,
        kv_short=kv_short and running >= seats,
        saturated=False,
    )


def _open(memory: MemoryPlan, demand: Demand, rate: float) -> SteadyState:
    """Requests at a rate: in flight by Little's law, or as many as there is room for and a queue that grows."""
    seats, kv_short = _sequences_at_most(memory, demand)
    cycle = _cycle(memory, demand, min(seats, float(demand.concurrency)) if demand.concurrency else seats)
    most = cycle.running / cycle.service_s
    saturated = rate >= most
    if saturated:
        throughput = most * cycle.output
        wait = (demand.requests or rate * (demand.duration_s or 60.0)) / 2 * (1 / most - 1 / rate)
    else:
        low, high = 0.0, cycle.running
        for _ in range(24):
            middle = (low + high) / 2
            short = rate * _cycle(memory, demand, max(1.0, middle)).service_s > middle
            low, high = (middle, high) if short else (low, middle)
        cycle = _cycle(memory, demand, max(1.0, high))
        throughput = rate * cycle.output
        busy = min(0.99, rate * cycle.stalls * cycle.added_s)
        wait = busy / (1 - busy) * cycle.added_s / 2
    return SteadyState(
        running=cycle.running,
        step=cycle.step,
        prefill_s=cycle.added_s,
        ttft_s=wait + cycle.step.total_s / 2 + cycle.added_s + cycle.step.scheduler_s,
        tpot_s=cycle.tpot_s,
        output_tok_per_s=throughput,
        kv_short=kv_short and cycle.running >= seats,
        saturated=saturated,
    )


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
        uncertainty=CPU_UNCERTAINTY if memory.deployment.gpu.vendor == "cpu" or memory.draft_tokens else UNCERTAINTY,
        draft_accepted_length=tokens_per_step(memory) if memory.draft_tokens else None,
    )


def binding(memory: MemoryPlan, demand: Demand, state: SteadyState) -> str:
    """What limits the run: too few sequences for want of KV cache, else whichever resource most of its time goes to."""
    if state.kv_short:
        return "kv_capacity"
    prefill = state.running * state.prefill_s
    if prefill > max(1.0, demand.output_tokens) * state.step.total_s:
        return "compute"
    return state.step.binding


def slo_rate_per_s(memory: MemoryPlan, demand: Demand, slo: Slo) -> float | None:
    """The highest request rate at which every limit of the SLO should hold: None without limits, 0.0 if none holds."""
    limits = [(metric, quantile, limit) for metric, quantile, limit in slo.limits() if metric != "itl_s"]
    if not limits:
        return None

    def holds(rate: float) -> bool:
        asked = replace(demand, requests=None, warmup_requests=0, duration_s=60.0, concurrency=None, rate_per_s=rate)
        state = steady_state(memory, asked)
        if state.saturated:
            return False
        own = state.prefill_s + state.step.total_s
        for metric, quantile, limit in limits:
            if metric == "ttft_s":
                value = own + max(0.0, state.ttft_s - own) * TAIL[quantile]
            elif metric == "tpot_s":
                value = state.step.total_s + (state.tpot_s - state.step.total_s) * TAIL[quantile]
            else:
                value = state.latency_s(demand.output_tokens) * (1 + 0.1 * (TAIL[quantile] - 1))
            if value > limit:
                return False
        return True

    low, high = 0.0, 0.01
    while holds(high) and high < 1e5:
        low, high = high, high * 2
    if low == 0.0:
        return 0.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
