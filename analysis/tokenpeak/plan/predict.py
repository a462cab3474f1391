"""What a config will do before it is launched: a roofline over the steps of the engine, with an honest uncertainty.

The steady state of a run is a cycle: each sequence in flight is prefilled once and then decoded one token a step, while
the others' prefills stall it. From the duration of those steps follow TPOT, throughput and, with the queue before the
engine, TTFT. The limit is the same cycle on ideal hardware: full bandwidth and arithmetic, nothing else.
"""

import math
from dataclasses import dataclass

from tokenpeak.plan.demand import Demand
from tokenpeak.plan.fit import Fit
from tokenpeak.plan.physics import Deployment, StepTime, step_time_s
from tokenpeak.records import Prediction
from tokenpeak.workload import Slo

UNCERTAINTY = 0.45
"""Half-width of the 80% interval before any trial was seen: across devices and engine versions a roofline of this kind
is off by this much; hosts, kernels and clocks are not in it."""

CPU_UNCERTAINTY = 0.75
"""The same for the CPU engine, whose cores are known only by their number."""

TAIL = {"p50": 0.9, "p75": 1.3, "p90": 1.9, "p95": 2.3, "p99": 3.2, "mean": 1.0}
"""A quantile of a waiting time as a multiple of its mean, between an exponential and a constant."""


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """One run as foretold; seconds and tokens per second of all requests together."""

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


def _decode(deployment: Deployment, sequences: float, context_tokens: float) -> StepTime:
    """A decode step of `sequences`, each with `context_tokens`; pipeline stages share them out."""
    share = max(1, round(sequences / deployment.pipeline_parallel))
    return step_time_s(deployment, decode_sequences=share, decode_context_tokens=round(share * context_tokens))


def _prefill_s(deployment: Deployment, prompts: int, tokens: float, cached: float, decoding: float) -> float:
    """The time that prefilling `prompts` prompts of `tokens` new tokens each adds, in chunks of the batch's size."""
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
        ).total_s
    return elapsed


def _sequences_at_most(fit: Fit, demand: Demand) -> tuple[float, bool]:
    """The most sequences in flight that engine and KV cache allow, and whether the cache is what limits them."""
    deployment = fit.deployment
    model = deployment.model
    middle = int(demand.input_tokens + demand.output_tokens / 2)
    each = model.kv_bytes_of_sequence(middle, deployment.kv_dtype, deployment.tensor_parallel)
    each /= deployment.pipeline_parallel
    shared = demand.prefix_hit_rate * demand.input_tokens if fit.prefix_caching else 0.0
    each *= max(0.2, 1 - 0.5 * shared / max(1, middle))
    room = max(1.0, fit.kv_cache_bytes / each)
    seats = float(deployment.max_num_seqs)
    return min(seats, room), room < seats


def steady_state(fit: Fit, demand: Demand) -> SteadyState:
    """The run of `demand` on a deployment that fits its memory."""
    deployment = fit.deployment
    seats, kv_short = _sequences_at_most(fit, demand)
    hits = demand.prefix_hit_rate if fit.prefix_caching else 0.0
    new, cached = demand.input_tokens * (1 - hits), demand.input_tokens * hits
    context = demand.input_tokens + demand.output_tokens / 2
    output = max(1.0, demand.output_tokens)

    def cycle(running: float) -> tuple[StepTime, float, float]:
        """(decode step, what one prefill adds to a step, TPOT) with `running` sequences."""
        step = _decode(deployment, running, context)
        added = max(0.0, _prefill_s(deployment, 1, new, cached, running) - step.scheduler_s - step.floor_s)
        if not deployment.eager and fit.chunked_prefill:
            # The weights are read once for the decodes and the chunk that travels with them.
            added = max(0.0, added - min(step.weights_s, added) * 0.5)
        return step, added, step.total_s + running * added / output

    if demand.rate_per_s is None:
        asked = float(demand.concurrency or 1)
        running = min(asked, seats)
        step, added, tpot = cycle(running)
        service = added + step.total_s + (output - 1) * tpot
        together = demand.fixed_lengths and (demand.requests or 0) + demand.warmup_requests <= 4 * asked
        if together:
            whole = _prefill_s(deployment, math.ceil(running), new, cached, 0)
            steps = math.ceil(running * new / deployment.max_num_batched_tokens)
            ttft = whole * (steps + 1) / (2 * steps)
            tpot = step.total_s + (whole - ttft) / output
            service = ttft + (output - 1) * tpot
        else:
            ttft = step.total_s / 2 + added + step.scheduler_s
        throughput = running * output / service
        if asked > running:
            ttft += (asked / running - 1) * service
        saturated = False
    else:
        cap = min(seats, float(demand.concurrency)) if demand.concurrency else seats
        step, added, tpot = cycle(cap)
        most = cap / (added + step.total_s + (output - 1) * tpot)
        rate = demand.rate_per_s
        saturated = rate >= most
        if saturated:
            running = cap
            behind = (demand.requests or rate * (demand.duration_s or 60.0)) / 2 * (1 / most - 1 / rate)
            throughput, wait = most * output, behind
        else:
            running = _running_at(rate, cap, output, cycle)
            step, added, tpot = cycle(running)
            throughput = rate * output
            busy = min(0.99, rate * added)
            wait = busy / (1 - busy) * added / 2
        ttft = wait + step.total_s / 2 + added + step.scheduler_s
    return SteadyState(
        running=running,
        step=step,
        prefill_s=added,
        ttft_s=ttft,
        tpot_s=tpot,
        output_tok_per_s=throughput,
        kv_short=kv_short and running >= seats,
        saturated=saturated,
    )


def _running_at(rate: float, cap: float, output: float, cycle: object) -> float:
    """Sequences in flight at `rate` by Little's law: the root of running = rate × service(running), by bisection."""
    assert callable(cycle)
    low, high = 0.0, cap
    for _ in range(24):
        running = (low + high) / 2
        step, added, tpot = cycle(max(1.0, running))
        if rate * (added + step.total_s + (output - 1) * tpot) > running:
            low = running
        else:
            high = running
    return max(1.0, high)


def hardware_limit_tok_per_s(fit: Fit, demand: Demand) -> float:
    """The most output tokens per second that the devices could give for this run.

    Each byte at the full bandwidth, each operation at the full rate, no exchange, no launch and no scheduling; never
    more than a rate asks for.
    """
    deployment = fit.deployment
    gpu, model = deployment.gpu, deployment.model
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    seats, _ = _sequences_at_most(fit, demand)
    running = max(1.0, min(seats, float(demand.concurrency or seats)))
    context = demand.input_tokens + demand.output_tokens / 2
    output = max(1.0, demand.output_tokens)
    hits = demand.prefix_hit_rate if fit.prefix_caching else 0.0
    active = model.active_linear_parameters + model.output_matrix_parameters
    share = 1.0
    if model.experts:
        floor = model.active_linear_parameters / model.linear_parameters
        share = max(floor, model.experts_read(round(running)) * (1 - floor) + floor)
    weight_bytes = deployment.matrix_bytes * min(1.0, share) + model.output_matrix_parameters * deployment.value_bytes
    kv_bytes = model.kv_bytes_per_token(deployment.kv_dtype) * context * running
    decode = max(
        (weight_bytes + kv_bytes) / (gpu.memory_bytes_per_s * devices),
        2 * active * running / (deployment.compute_flops * devices),
    )
    prefill = (
        2 * model.active_linear_parameters * demand.input_tokens * (1 - hits) / (deployment.compute_flops * devices)
    )
    limit = running * output / (output * decode + running * prefill)
    return min(limit, demand.rate_per_s * output) if demand.rate_per_s else limit


def predict(fit: Fit, demand: Demand) -> Prediction:
    """The prediction of one config for one run."""
    state = steady_state(fit, demand)
    return Prediction(
        output_tok_per_s=state.output_tok_per_s,
        ttft_s=state.ttft_s,
        tpot_s=state.tpot_s,
        kv_cache_tokens=fit.kv_cache_tokens,
        binding=binding(fit, demand, state),
        limit_output_tok_per_s=hardware_limit_tok_per_s(fit, demand),
        uncertainty=CPU_UNCERTAINTY if fit.deployment.gpu.vendor == "cpu" else UNCERTAINTY,
    )


def binding(fit: Fit, demand: Demand, state: SteadyState) -> str:
    """What limits the run: too few sequences for want of KV cache, else whichever resource most of its time goes to."""
    if state.kv_short:
        return "kv_capacity"
    prefill = state.running * state.prefill_s
    if prefill > max(1.0, demand.output_tokens) * state.step.total_s:
        return "compute"
    return state.step.binding


def slo_rate_per_s(fit: Fit, demand: Demand, slo: Slo) -> float | None:
    """The highest request rate at which every limit of the SLO should hold: None without limits, 0.0 if none holds."""
    limits = [(metric, quantile, limit) for metric, quantile, limit in slo.limits() if metric != "itl_s"]
    if not limits:
        return None

    def holds(rate: float) -> bool:
        asked = Demand(
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            longest_tokens=demand.longest_tokens,
            longest_input_tokens=demand.longest_input_tokens,
            requests=None,
            warmup_requests=0,
            duration_s=60.0,
            concurrency=None,
            rate_per_s=rate,
            prefix_hit_rate=demand.prefix_hit_rate,
        )
        state = steady_state(fit, asked)
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
