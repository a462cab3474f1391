"""Sizes of weights and KV cache: formulas that ignore grouped-query attention, and capacities without a length."""

from collections.abc import Iterator

from tokenpeak.checks.evidence import Evidence, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, agrees, figure, looks, settled, undecided
from tokenpeak.predict.config_json import quantization_named
from tokenpeak.predict.model import ModelFacts, model_facts

GIB = 1024**3


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
    _: Evidence, *, model: str, kv_cache_bytes: float, stated_sequences: float, tokens_per_sequence: int | None = None,
    max_model_len: int,
) -> CheckOutcome:  # fmt: skip
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
    if tokens_per_sequence is not None:
        count = room / tokens_per_sequence
        lines.append(f"At {tokens_per_sequence:,} tokens each: {figure(count)} sequences.")
        corrected = f"{figure(count)} sequences of {tokens_per_sequence:,} tokens"
        return settled(lines, holds=agrees(stated_sequences, count, 0.15), corrected=corrected)
    if full < stated_sequences:
        lines.append("No length is stated, and the number depends on nothing else.")
    corrected = (
        f"{figure(room)} tokens: {figure(stated_sequences)} sequences up to {figure(room / stated_sequences)} "
        f"tokens each, or {figure(full)} of {max_model_len:,}"
    )
    return settled(lines, holds=full >= stated_sequences, corrected=corrected, otherwise="not_supported")


def weights_size(
    evidence: Evidence, *, model: str, stated_bytes: float, quantization: str | None = None, config: str | None = None
) -> CheckOutcome:
    """Whether the weights take the stated bytes, by the model's parameters and by what the archive gives."""
    facts = model_facts(model)
    if facts is None:
        return _unknown(model)
    method = quantization_named(quantization) if quantization else facts.quantization
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
def guard(evidence: Evidence) -> Iterator[Finding | None]:
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
