"""SLO: limits on percentiles of latencies, and how many requests show one."""

from pydantic import PositiveFloat

from tokenpeak.spec import Declaration


def requests_to_see(percentile: str) -> int:
    """The fewest requests that have one beyond the percentile: 100 for p99, 20 for p95, 2 for p50."""
    beyond = 100 - int(percentile.removeprefix("p"))
    return -(-100 // beyond)


class Slo(Declaration):
    """Limits that a run must hold; the field's name says metric, percentile and unit."""

    ttft_p50_ms: PositiveFloat | None = None
    """Time to first token, p50."""
    ttft_p95_ms: PositiveFloat | None = None
    """Time to first token, p95."""
    ttft_p99_ms: PositiveFloat | None = None
    """Time to first token, p99."""
    tpot_p50_ms: PositiveFloat | None = None
    """Time per output token after the first, of each request, p50."""
    tpot_p95_ms: PositiveFloat | None = None
    """Time per output token after the first, of each request, p95."""
    tpot_p99_ms: PositiveFloat | None = None
    """Time per output token after the first, of each request, p99."""
    itl_p95_ms: PositiveFloat | None = None
    """Gap between two events with tokens, p95."""
    itl_p99_ms: PositiveFloat | None = None
    """Gap between two events with tokens, p99."""
    latency_p50_ms: PositiveFloat | None = None
    """Time to the last token, p50."""
    latency_p95_ms: PositiveFloat | None = None
    """Time to the last token, p95."""
    latency_p99_ms: PositiveFloat | None = None
    """Time to the last token, p99."""

    def limits(self) -> list[tuple[str, str, float]]:
        """The limits given: (metric as in metrics.py, percentile, limit in seconds)."""
        limits = []
        for field, limit_ms in self:
            if limit_ms is not None:
                metric, percentile, _ = field.split("_")
                limits.append((f"{metric}_s", percentile, limit_ms / 1000))
        return limits

    def requests_needed(self) -> int:
        """The fewest requests that can show whether every limit holds."""
        return max((requests_to_see(percentile) for _, percentile, _ in self.limits()), default=1)
