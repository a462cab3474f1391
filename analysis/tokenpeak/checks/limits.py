"""Speeds far from what the hardware can do, what binds them, and what a device is said to need."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from tokenpeak.checks.evidence import Evidence, Row, place, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, figure, looks, settled, undecided
from tokenpeak.predict.hardware import gpu_facts, gpu_names
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.physics import step_time_s

GPU_BOUND = 0.2
"""Share of the hardware's limit from which on a speed says something of the GPU."""
TOO_FAST = 1.25
"""Share of the limit beyond which a speed cannot be: the table of devices is right to some percent."""
IDLE = 0.002
"""Share of the limit under which the load, not the engine, was measured."""


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


def binding_resource(
    evidence: Evidence, *, where: Mapping[str, object], column: str, stated: str, context_tokens: int = 200
) -> CheckOutcome:
    """Whether the stated resource takes most of a decoding step, against what was measured."""
    row = evidence.one(where)
    memory = evidence.memory_plan(row) if row else None
    speed, concurrency = (value(row, name) if row else None for name in (column, "concurrency"))
    if memory is None or not speed or not concurrency:
        return undecided("Hardware, model or speed are unknown.")
    step = step_time_s(
        memory.deployment, decode_sequences=int(concurrency), decode_context_tokens=int(concurrency) * context_tokens
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
def guard(evidence: Evidence) -> Iterator[Finding | None]:
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
