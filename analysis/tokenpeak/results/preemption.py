"""Share of tokens that an engine computed again because it preempted requests. Pure."""

from tokenpeak.records import RunSummary


def recomputed_share(preemptions: int, summary: RunSummary) -> float:
    """About how many of a run's tokens were computed again: each preemption costs a prompt and half an answer."""
    requests = summary.requests_ok or 0
    prompt, answer = summary.input_tokens or 0, summary.output_tokens or 0
    if not requests or not prompt + answer:
        return float(preemptions > 0)
    return preemptions / requests * (prompt + answer / 2) / (prompt + answer)
