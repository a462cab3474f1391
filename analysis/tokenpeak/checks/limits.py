"""Limits of the hardware: speeds that it can have and what binds them, and sizes of weights and KV cache."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from tokenpeak.checks.evidence import (
    CheckOutcome,
    Evidence,
    Finding,
    Row,
    agrees,
    figure,
    looks,
    place,
    settled,
    undecided,
    value,
)
from tokenpeak.predict.hardware import gpu_facts, gpu_names
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.model import ModelFacts, model_facts
from tokenpeak.predict.physics import step_time_s

GPU_BOUND = 0.2
"""Share of the hardware's limit from which on a speed says something of the GPU."""
TOO_FAST = 1.25
"""Share of the limit beyond which a speed cannot be: the table of devices is right to some percent."""
IDLE = 0.002
"""Share of the limit under which the load, not the engine, was measured."""
GIB = 1024**3
DECODED_CONTEXT = 200
"""Tokens before the one that is decoded, in the mean, where a source does not say."""


def request_limit_tok_per_s(memory: MemoryPlan, sequences: float, context_tokens: float) -> float:
    """The most that one of `sequences` could get: each byte at full bandwidth, each operation at full rate.

    Replicas share the sequences out, a mixture of experts reads what its tokens pick, and every draft may be accepted.
    """
    deployment = memory.deployment
    model, gpu = deployment.model, deployment.gpu
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    own = max(1.0, sequences / memory.data_parallel)
    weights = deployment.matrix_bytes_read(round(own)) + model.output_matrix_parameters * deployment.value_bytes
    kv = model.kv_bytes_per_token(deployment.kv_dtype) * context_tokens * own
    read_s = (weights + kv) / (gpu.memory_bytes_per_s * devices) / (memory.draft_tokens + 1)
    flops = 2 * (model.active_linear_parameters + model.output_matrix_parameters) * own
    return 1 / max(read_s, flops / (deployment.compute_flops * devices))


def measures_hardware(evidence: Evidence, *, where: Mapping[str, object], column: str) -> CheckOutcome:
    """Whether one request's speed in these runs is near enough to the hardware's limit to say anything of it."""
    runs = evidence.select(where).filter(pl.col(column).is_not_null())
    lines: list[str] = []
    shares: list[tuple[float, str]] = []
    for row in runs.sort(column, descending=True).iter_rows(named=True):
        memory, speed = evidence.memory_plan(row), value(row, column)
        if memory is None or speed is None:
            continue
        limit = request_limit_tok_per_s(memory, value(row, "concurrency") or 1.0, 256)
        shares.append((speed / limit, str(row["node"])))
        lines.append(
            f"{row['node']}: {figure(speed)} tok/s a request of a possible {figure(limit)}, {speed / limit:.1%}."
        )
    if not shares:
        return undecided("Hardware or model of these runs are unknown.")
    low = [node for share, node in shares if share < GPU_BOUND]
    lines.append(f"Under {GPU_BOUND:.0%} of the limit: {len(low)} of {len(shares)}.")
    corrected = f"{', '.join(low)} waited for the host, not for the GPU: eager launches of small steps"
    return settled(lines, holds=not low, corrected=corrected)


def binding_resource(evidence: Evidence, *, where: Mapping[str, object], column: str, stated: str) -> CheckOutcome:
    """Whether the stated resource takes most of a decoding step, against what was measured."""
    row = evidence.one(where)
    memory = evidence.memory_plan(row) if row else None
    speed, concurrency = (value(row, name) if row else None for name in (column, "concurrency"))
    if memory is None or not speed or not concurrency:
        return undecided("Hardware, model or speed are unknown.")
    step = step_time_s(
        memory.deployment,
        decode_sequences=int(concurrency),
        decode_context_tokens=int(concurrency) * DECODED_CONTEXT,
    )
    measured = 1 / speed
    terms = {
        "compute": step.compute_s + step.attention_s,
        "weights_bandwidth": step.weights_s,
        "kv_bandwidth": step.kv_s,
        "interconnect": step.interconnect_s,
        "launch_overhead": step.launch_s + step.scheduler_s,
    }
    lines = [f"Measured: a token every 1 ÷ {figure(speed)} = {figure(measured * 1000)} ms, {concurrency:g} in flight."]
    lines += [
        f"{name.replace('_', ' ')}: {figure(seconds * 1000)} ms, {seconds / measured:.0%} of it."
        for name, seconds in sorted(terms.items(), key=lambda pair: -pair[1])
    ]
    largest = max(terms, key=lambda name: terms[name])
    corrected = f"{largest.replace('_', ' ')} takes most; {stated} takes {terms[stated] / measured:.0%}"
    return settled(lines, holds=largest == stated, corrected=corrected)


def cache_added(evidence: Evidence, *, before: str, after: str, stated_gib: float, stated_largest: str) -> CheckOutcome:
    """Whether a config's KV cache is larger than another's by the stated GiB, and which config has the largest."""
    trials = evidence.trials.filter(pl.col("kv_cache_bytes").is_not_null())
    sizes = {str(name): float(size) / GIB for name, size in trials.select("config_name", "kv_cache_bytes").iter_rows()}
    if before not in sizes or after not in sizes:
        return undecided(f"{len(sizes)} configs have a known KV cache.", corrected="not published for both")
    added = sizes[after] - sizes[before]
    largest = max(sizes, key=lambda name: sizes[name])
    lines = [f"{name}: {size:.2f} GiB." for name, size in sizes.items()]
    lines.append(f"{after} − {before} = {added:.2f} GiB; stated about {figure(stated_gib)} GiB.")
    holds = abs(added - stated_gib) <= 0.5 and largest == stated_largest
    return settled(lines, holds=holds, corrected=f"{added:.2f} GiB more; {largest} has the largest")


def needs_capability(
    _: Evidence, *, feature: str, stated_minimum: float, stated_devices: Sequence[str]
) -> CheckOutcome:
    """Whether a number format needs the stated compute capability, and the named devices have it."""
    lines, wrong = [], []
    for name in stated_devices:
        facts = gpu_facts(name)
        if facts is None:
            return undecided(f"{name} is not in the table of devices.")
        own = float(facts.compute_capability)
        lines.append(
            f"{facts.name}: compute capability {own:.1f}, {feature} units: {'yes' if feature in facts.flops else 'no'}."
        )
        if own < stated_minimum or feature not in facts.flops:
            wrong.append(f"{facts.name} has {own:.1f}")
    with_units = [
        facts
        for name in gpu_names()
        if (facts := gpu_facts(name)) and facts.vendor == "nvidia" and feature in facts.flops
    ]
    lowest = min(with_units, key=lambda facts: float(facts.compute_capability), default=None)
    if lowest is not None:
        lines.append(f"The lowest with {feature} units is {lowest.compute_capability}: {lowest.name}.")
        if float(lowest.compute_capability) < stated_minimum:
            wrong.append(f"{lowest.compute_capability} is enough ({lowest.name})")
    return settled(lines, holds=not wrong, corrected="; ".join(wrong))


def needs_flag(evidence: Evidence, *, flag: str, stated_devices: Sequence[str]) -> CheckOutcome:
    """Whether an engine needs a flag on a device: only launches without it can show that."""
    configs = evidence.configs.select("config_id", "flags").unique("config_id")
    trials = evidence.trials.join(configs, on="config_id").join(evidence.nodes.select("node", "gpu_name"), on="node")
    lines, needed = [], []
    for name in stated_devices:
        facts = gpu_facts(name)
        normal = facts.name if facts else name
        own = trials.filter(pl.col("gpu_name") == normal)
        without = own.filter(~pl.col("flags").str.contains(f'"{flag}":true', literal=True))
        ok = without.filter(pl.col("status") == "ok").height
        lines.append(f"{normal}: {own.height} launches, {without.height} without {flag}, of which {ok} ran.")
        if facts is not None:
            peers = [
                peer.name
                for other in gpu_names()
                if (peer := gpu_facts(other)) and peer.compute_capability == facts.compute_capability and peer != facts
            ]
            lines.append(f"Compute capability {facts.compute_capability}, as {', '.join(peers[:4]) or 'no other'}.")
        if without.height:
            needed.append(ok == 0)
    if all(needed) and len(needed) < len(stated_devices):
        return undecided(*lines, corrected=f"launch each once without {flag}; nothing published did")
    return settled(lines, holds=all(needed), corrected=f"launches without {flag} ran")


@looks
def guard_limits(evidence: Evidence) -> Iterator[Finding | None]:
    """No run is faster than its hardware's limit, nor so slow under full load that something else was measured."""
    memory_plans: dict[tuple[object, object], MemoryPlan | None] = {}
    for row in evidence.counted().iter_rows(named=True):
        speed, sequences = value(row, "output_tok_per_s"), _in_flight(row)
        key = (row["config_id"], row["node"])
        if key not in memory_plans:
            memory_plans[key] = evidence.memory_plan(row)
        memory = memory_plans[key]
        if speed is None or sequences is None or memory is None:
            continue
        running = min(sequences, float(memory.deployment.max_num_seqs * memory.data_parallel))
        limit = running * request_limit_tok_per_s(memory, running, 0)
        words = ""
        if speed > TOO_FAST * limit:
            words = "more than the hardware can give"
        elif speed < IDLE * limit:
            words = "so little that something other than the engine was measured"
        text = f"{figure(speed)} tok/s, {words} ({figure(limit)} with {running:g} sequences)"
        yield Finding(where=place(row), text=text) if words else None


def _in_flight(row: Row) -> float | None:
    """Requests in flight of a closed load; an open load's are not known, and its rate bounds it anyway."""
    return value(row, "concurrency") if row["rate_per_s"] is None else None


def _unknown(model: str) -> CheckOutcome:
    return undecided(f"The facts of {model} are not known.")


def _per_token(facts: ModelFacts) -> str:
    heads, width = facts.kv_heads, facts.head_size
    each = facts.kv_bytes_per_token()
    return f"2 (K and V) × {facts.layers} layers × {heads} KV heads × {width} × 2 bytes = {figure(each)} bytes a token"


def kv_cache_size(_: Evidence, *, model: str, tokens: int, stated_bytes: float) -> CheckOutcome:
    """Whether the stated size of the KV cache follows from the model's KV heads, rather than from all its heads."""
    facts = model_facts(model)
    if facts is None:
        return _unknown(model)
    computed = facts.kv_bytes_of_sequence(tokens)
    group = facts.heads / facts.kv_heads
    lines = [
        f"{_per_token(facts)}.",
        f"× {tokens:,} tokens = {figure(computed / 1e9)} GB ({figure(computed / GIB)} GiB).",
        f"Stated: {figure(stated_bytes / 1e9)} GB, {figure(stated_bytes / computed)} times as much; "
        f"{facts.heads} query heads share {facts.kv_heads} KV heads, {figure(group)} each.",
    ]
    corrected = f"{figure(computed / 1e9)} GB ({figure(computed / GIB)} GiB)"
    return settled(lines, holds=agrees(stated_bytes, computed, 0.05), corrected=corrected)


def kv_capacity(
    _: Evidence, *, model: str, kv_cache_bytes: float, stated_sequences: float, max_model_len: int
) -> CheckOutcome:
    """Whether so much KV cache serves so many sequences; without their length that cannot be so in general."""
    facts = model_facts(model)
    if facts is None:
        return _unknown(model)
    each = facts.kv_bytes_per_token()
    room = kv_cache_bytes / each
    full = room / max_model_len
    lines = [
        f"{_per_token(facts)}.",
        f"{figure(kv_cache_bytes / 1e9)} GB ÷ {figure(each)} bytes = {figure(room)} tokens.",
        f"÷ {figure(stated_sequences)} sequences = {figure(room / stated_sequences)} tokens each; "
        f"at the full {max_model_len:,} tokens: {figure(full)} sequences.",
    ]
    if full < stated_sequences:
        lines.append("No length is stated, and the number depends on nothing else.")
    corrected = (
        f"{figure(room)} tokens: {figure(stated_sequences)} sequences up to {figure(room / stated_sequences)} "
        f"tokens each, or {figure(full)} of {max_model_len:,}"
    )
    return settled(lines, holds=full >= stated_sequences, corrected=corrected, otherwise="not_supported")


def weights_size(evidence: Evidence, *, model: str, stated_bytes: float, config: str | None = None) -> CheckOutcome:
    """Whether the weights take the stated bytes, by the model's parameters and by what the archive gives."""
    facts = model_facts(model)
    if facts is None:
        return _unknown(model)
    method = facts.quantization
    computed = facts.weight_bytes("auto", method)
    bits = method.bits if method else 16
    lines = [
        f"{figure(facts.linear_parameters / 1e9)}·10⁹ parameters × {figure(bits)} bits ÷ 8 + "
        f"{figure((facts.parameters - facts.linear_parameters) / 1e9)}·10⁹ × 2 bytes = {figure(computed / 1e9)} GB.",
        f"Stated: {figure(stated_bytes / 1e9)} GB.",
    ]
    if config is not None:
        own = evidence.trials.filter(config_name=config)
        seen = own["weights_bytes"].drop_nulls()
        if seen.len():
            lines.append(f"The archive itself gives {figure(float(seen[0]) / 1e9)} GB for {config}.")
            if not agrees(float(seen[0]), computed, 0.25):
                return undecided(*lines, "The archive's own figure and the parameters disagree.")
    return settled(lines, holds=agrees(stated_bytes, computed, 0.25), corrected=f"{figure(computed / 1e9)} GB")


@looks
def guard_memory(evidence: Evidence) -> Iterator[Finding | None]:
    """No KV cache, stated or predicted, is off by the factor by which query heads outnumber KV heads."""
    models = dict(evidence.configs.select("config_id", "model_name").iter_rows())
    for row in evidence.trials.iter_rows(named=True):
        seen, predicted = value(row, "kv_cache_tokens"), value(row, "predicted_kv_cache_tokens")
        facts = model_facts(str(models.get(row["config_id"], "")))
        if facts is None or not seen or not predicted or facts.heads < 2 * facts.kv_heads:
            continue
        group, ratio = facts.heads / facts.kv_heads, seen / predicted
        text = (
            f"the engine has a KV cache of {figure(seen)} tokens and {figure(predicted)} were predicted: the factor "
            f"is that of {facts.heads} heads over {facts.kv_heads} KV heads, which a formula left out"
        )
        is_off = agrees(ratio, group, 0.1) or agrees(ratio, 1 / group, 0.1)
        yield Finding(where=f"{row['config_name']} on {row['node']}", text=text) if is_off else None
