"""Units and rates that do not add up: quotients, energy per token, a request's rate taken for the node's."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

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
from tokenpeak.errors import FactsError, suggestion
from tokenpeak.predict.physics import step_time_s
from tokenpeak.spec.load import FEWEST_WAVES
from tokenpeak.spec.sweep import MARGIN

QUOTIENTS = {("W", "tok/s"): "J/token", ("J", "tok"): "J/token", ("J", "s"): "W", ("tok", "s"): "tok/s"}
"""Units above and below the line → that of their quotient."""
NEAR = 2.5
"""The physics gives a step's time to within this factor."""
SAME = 0.05
"""A node's rate this near to a single request's is that request's."""
RAMP_AND_DRAIN = 2
"""Waves of requests outside the steady window of a closed loop."""


def quotient(
    evidence: Evidence,
    *,
    where: Mapping[str, object],
    numerator_column: str,
    numerator_unit: str,
    denominator_column: str,
    denominator_unit: str,
    stated: float,
    stated_unit: str,
    whole: str = "",
) -> CheckOutcome:
    """Whether a quotient has the value and the unit stated; `whole` says what the denominator really is of."""
    row = evidence.one(where)
    top, bottom = (value(row, name) if row else None for name in (numerator_column, denominator_column))
    if top is None or not bottom:
        return undecided("The archive lacks one of the two figures.")
    units = (numerator_unit, denominator_unit)
    if units not in QUOTIENTS:
        known = [" ÷ ".join(each) for each in QUOTIENTS]
        raise FactsError(f"Claims name a quotient {' ÷ '.join(units)}. {suggestion(' ÷ '.join(units), known)}")
    computed, named = top / bottom, QUOTIENTS[units]
    lines = [
        f"{figure(top)} {numerator_unit} ÷ {figure(bottom)} {denominator_unit} = {figure(computed)} {named}.",
        f"A W is a J/s, so W ÷ (tok/s) is J/token; stated: {figure(stated)} {stated_unit}.",
    ]
    if whole:
        lines.append(whole)
    holds = agrees(stated, computed, 0.001) and stated_unit == named
    return settled(lines, holds=holds, corrected=f"{figure(computed)} {named}")


def energy_per_million(
    evidence: Evidence, *, where: Mapping[str, object], stated_kwh: float, concurrency: float | None = None
) -> CheckOutcome:
    """Whether the stated kWh per million tokens follow from the run's J per token."""
    row = evidence.one(where)
    joule = value(row, "energy_j_per_output_tok") if row else None
    if joule is None:
        return undecided("The run has no energy figure.")
    computed = joule * 1e6 / 3.6e6
    ratio = computed / stated_kwh
    lines = [
        f"{figure(joule)} J/token × 1,000,000 tokens ÷ 3,600,000 J/kWh = {figure(computed)} kWh.",
        f"Stated: {figure(stated_kwh)} kWh, {figure(ratio)} times less.",
    ]
    if concurrency:
        lines.append(
            f"Were the speed that of the node, {figure(concurrency)} times one request's: "
            f"{figure(computed / concurrency)} kWh."
        )
    return settled(lines, holds=agrees(stated_kwh, computed, 0.03), corrected=f"{figure(computed)} kWh of the GPUs")


WHOLE = "whole_output_tok_per_s"
IDENTITIES: Sequence[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = (
    ("J/token = W ÷ tok/s of the whole load", "energy_j_per_output_tok", ("power_w",), (WHOLE,)),
    ("J/token = J ÷ tokens", "energy_j_per_output_tok", ("energy_j",), ("output_tokens",)),
    ("W = J ÷ s", "power_w", ("energy_j",), ("duration_s",)),
    ("req/s = tok/s × requests ÷ tokens", "request_per_s", ("output_tok_per_s", "requests_ok"), ("output_tokens",)),
    ("input = output tok/s × tokens", "input_tok_per_s", ("output_tok_per_s", "input_tokens"), ("output_tokens",)),
)
"""A column by the columns multiplied above and below the line."""
WITHIN = 0.05


MEASURED = ("energy_counter", "sampled_power")
"""Sources of energy that measure it."""


def faster_is_greener(evidence: Evidence) -> CheckOutcome:
    """Whether energy a token falls with throughput by measurement, rather than by dividing one power by it.

    A step up of less than MARGIN shows nothing.
    """
    column = evidence.objective
    runs = evidence.objective_runs().filter(pl.col(column) > 0, pl.col("power_w").is_not_null()).sort(column)
    powers = runs["power_w"].unique().sort().to_list()
    if runs.height < 2:
        return undecided(f"{runs.height} rows have a power.", corrected="not published")
    lines = [f"{runs.height} rows have a power: {figure(powers[0])} to {figure(powers[-1])} W."]
    if len(powers) == 1 and not runs["energy_source"].is_in(MEASURED).any():
        lines.append(f"{figure(powers[0])} W ÷ throughput falls with throughput, whatever was drawn.")
        corrected = f"{figure(powers[0])} W is assumed at every speed; no power was measured"
        return settled(lines, holds=False, corrected=corrected, otherwise="not_supported")
    joules = (runs["power_w"] / runs[column]).to_list()
    lines.append(f"From the slowest to the fastest: {', '.join(figure(joule) for joule in joules)} J/token.")
    against = sum(after > before * (1 + MARGIN) for before, after in pairwise(joules))
    return settled(
        lines, holds=not against, corrected=f"{against} of {len(joules) - 1} steps to a faster config cost more"
    )


@looks
def guard_units(evidence: Evidence) -> Iterator[Finding | None]:
    """The columns of every run go together: energy, power, time, tokens and requests."""
    pue = evidence.spec.energy.pue
    for row in evidence.runs.iter_rows(named=True):
        pairs: list[tuple[str, str, float]] = []
        for name, column, top, bottom in IDENTITIES:
            above, below = (
                [part for each in parts if (part := value(row, each)) is not None] for parts in (top, bottom)
            )
            if (len(above), len(below)) == (len(top), len(bottom)) and all(below):
                pairs.append((name, column, prod(above) / prod(below)))
        if (joule := value(row, "energy_j_per_output_tok")) is not None:
            pairs.append(("kWh/1M = J/token ÷ 3.6 × PUE", "energy_kwh_per_1m_output_tok", joule / 3.6 * pue))
        both = value(row, "input_tok_per_s"), value(row, "output_tok_per_s")
        if both[0] is not None and both[1] is not None:
            pairs.append(("total = input + output tok/s", "total_tok_per_s", both[0] + both[1]))
        for name, column, computed in pairs:
            number = value(row, column)
            if number is None:
                continue
            # Two digits after the point are all that printed results keep of a small rate.
            is_wrong = not agrees(number, computed, WITHIN) and abs(number - computed) > 0.0051
            text = f"{column} is {figure(number)}, and {name} gives {figure(computed)}"
            yield Finding(where=place(row), text=text) if is_wrong else None


def node_rate(evidence: Evidence, *, where: Mapping[str, object], stated_tok_per_s: float, column: str) -> CheckOutcome:
    """Whether a stated rate is the node's: the time of a token that follows must be one that the hardware can have."""
    row = evidence.one(where)
    if row is None:
        return undecided("The archive has no such run.")
    rate, concurrency, latency_s = value(row, column), value(row, "concurrency"), value(row, "latency_s_p95")
    if rate is None or concurrency is None:
        return undecided("The run's rate or its concurrency is not known.")
    lines = [
        f"Published: {figure(stated_tok_per_s)} tok/s; in the data: {figure(rate)} tok/s, {concurrency:g} in flight."
    ]
    as_node, as_request = concurrency / rate, 1 / rate
    lines.append(
        f"As the node's rate, each request gets a token every {concurrency:g} ÷ {figure(rate)} = {figure(as_node)} s."
    )
    lines.append(f"As one request's rate, it gets one every 1 ÷ {figure(rate)} = {figure(as_request * 1000)} ms.")
    if latency_s is not None:
        lines.append(
            f"In its latency of {figure(latency_s)} s a request would so get {figure(latency_s / as_node)} tokens "
            f"by the first reading, {figure(latency_s / as_request)} by the second."
        )
    memory = evidence.memory_plan(row)
    if memory is None:
        return undecided(*lines, "Hardware or model are unknown.")
    step = step_time_s(
        memory.deployment, decode_sequences=int(concurrency), decode_context_tokens=int(concurrency) * 200
    ).total_s
    lines.append(f"A step with {concurrency:g} sequences takes this hardware about {figure(step * 1000)} ms.")
    node_fits, request_fits = (max(time / step, step / time) <= NEAR for time in (as_node, as_request))
    corrected = (
        f"about {figure(concurrency * rate)} tok/s for the node ({concurrency:g} × {figure(rate)}); "
        f"{figure(rate)} tok/s for each request"
    )
    return undecided(*lines) if node_fits == request_fits else settled(lines, holds=node_fits, corrected=corrected)


def rate_product(
    _: Evidence,
    *,
    stated_tok_per_s: float,
    stated_requests_per_min: float,
    stated_tokens_per_request: float,
) -> CheckOutcome:
    """Whether tokens per second, requests per minute and tokens per request go together."""
    implied = stated_requests_per_min * stated_tokens_per_request / 60
    allowed = stated_tok_per_s * 60 / stated_tokens_per_request
    lines = (
        f"{figure(stated_requests_per_min)} requests a minute × {figure(stated_tokens_per_request)} tokens ÷ 60 s = "
        f"{figure(implied)} tok/s.",
        f"{figure(stated_tok_per_s)} tok/s ÷ {figure(stated_tokens_per_request)} tokens × 60 s = "
        f"{figure(allowed)} requests a minute.",
    )
    corrected = f"{figure(implied)} tok/s, or {figure(allowed)} requests a minute; not both as stated"
    return settled(lines, holds=agrees(stated_tok_per_s, implied, 0.15), corrected=corrected)


@looks
def guard_rates(evidence: Evidence) -> Iterator[Finding | None]:
    """Each run's throughput is its tokens over its duration, and no single request's speed.

    That of a closed loop's steady window is less than its most in one second.
    """
    for row in evidence.runs.iter_rows(named=True):
        node, request = value(row, "output_tok_per_s"), value(row, "request_output_tok_per_s_mean")
        tokens, duration_s = value(row, "output_tokens"), value(row, "duration_s")
        concurrency, sent = value(row, "concurrency"), value(row, "requests_sent")
        if node is None:
            continue
        is_one = bool(request) and agrees(node, request or 0.0, SAME)
        steady_s, peak = steady_length_s(row), value(row, "peak_output_tok_per_s")
        if steady_s is not None:
            is_wrong = (is_one and (concurrency or 1) > 1) or (peak is not None and steady_s >= 1 and node > 1.1 * peak)
            text = (
                f"output_tok_per_s is {figure(node)}, with {concurrency:g} in flight at {figure(request)} tok/s each "
                f"and at most {figure(peak)} tok/s in one second"
            )
            yield Finding(where=place(row), text=text) if is_wrong else None
        elif tokens and duration_s:
            whole, like = tokens / duration_s, ", one request's speed" if is_one else ""
            text = (
                f"output_tok_per_s is {figure(node)}{like}, and {figure(tokens)} tokens in {figure(duration_s)} s are "
            )
            is_wrong = not agrees(node, whole, 0.1)
            yield Finding(where=place(row), text=f"{text}{figure(whole)} tok/s") if is_wrong else None
        elif request is not None and concurrency is not None and 2 <= concurrency <= (sent or concurrency):
            text = f"output_tok_per_s is {figure(node)}, one request's speed, with {concurrency:g} in flight"
            yield Finding(where=place(row), text=text) if is_one else None


@looks
def guard_waves(evidence: Evidence) -> Iterator[Finding | None]:
    """Throughput of closed loops is of their steady windows, which hold enough waves: not of ramp and drain."""
    closed = evidence.counted().filter(
        pl.col("concurrency") > 0, pl.col("rate_per_s").is_null(), pl.col("output_tok_per_s").is_not_null()
    )
    whole = pl.col("requests_sent") / pl.col("concurrency")
    # One wave is the ramp and one the drain of a run whose window is not known.
    waves = pl.coalesce(pl.col("steady_waves").cast(pl.Float64), whole - (RAMP_AND_DRAIN - 1e-9))
    shortest = closed.with_columns(waves=waves, whole=whole).drop_nulls("waves").sort("waves")
    levels = shortest.unique(["workload_name", "level_label"], keep="first", maintain_order=True)
    for row in levels.sort("workload_name", "level_label").iter_rows(named=True):
        concurrency, steady = float(row["concurrency"]), row["steady_waves"]
        over = (
            f"the whole load of {figure(row['whole'])} waves of requests, ramp-up and drain included"
            if steady is None
            else f"{steady} wave of requests between ramp and drain"
        )
        text = (
            f"throughput is over {over}, and may be off by more than 10%. Send at least "
            f"{(FEWEST_WAVES + RAMP_AND_DRAIN) * concurrency:,.0f} requests, or hold the load for as long as those take"
        )
        where = f"{row['workload_name']} at {row['level_label']}"
        yield Finding(where=where, text=text) if row["waves"] < FEWEST_WAVES else None


def steady_length_s(row: Row) -> float | None:
    """The length of a closed loop's steady window; None where its throughput is over the whole load."""
    begin, end = value(row, "steady_from_s"), value(row, "steady_to_s")
    return end - begin if begin is not None and end is not None else None
