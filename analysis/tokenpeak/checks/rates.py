"""A rate of one request taken for the node's, and rates that do not follow from what they are said to be made of."""

from collections.abc import Iterator, Mapping

from tokenpeak.checks.evidence import Evidence, place, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, agrees, figure, looks, settled, undecided
from tokenpeak.predict.physics import step_time_s

NEAR = 2.5
"""The physics gives a step's time to within this factor."""
SAME = 0.05
"""A node's rate this near to a single request's is that request's."""


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
    within: float = 0.15,
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
    return settled(lines, holds=agrees(stated_tok_per_s, implied, within), corrected=corrected)


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
    """Each run's throughput is its tokens over its duration, and no single request's speed."""
    for row in evidence.runs.iter_rows(named=True):
        node, request = value(row, "output_tok_per_s"), value(row, "request_output_tok_per_s_mean")
        tokens, duration_s = value(row, "output_tokens"), value(row, "duration_s")
        concurrency, sent = value(row, "concurrency"), value(row, "requests_sent")
        if node is None:
            continue
        is_one = bool(request) and agrees(node, request or 0.0, SAME)
        if tokens and duration_s:
            whole, like = tokens / duration_s, ", one request's speed" if is_one else ""
            text = (
                f"output_tok_per_s is {figure(node)}{like}, and {figure(tokens)} tokens in {figure(duration_s)} s are "
            )
            is_wrong = not agrees(node, whole, 0.1)
            yield Finding(where=place(row), text=f"{text}{figure(whole)} tok/s") if is_wrong else None
        elif request is not None and concurrency is not None and 2 <= concurrency <= (sent or concurrency):
            text = f"output_tok_per_s is {figure(node)}, one request's speed, with {concurrency:g} in flight"
            yield Finding(where=place(row), text=text) if is_one else None
