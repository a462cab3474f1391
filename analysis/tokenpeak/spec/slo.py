"""SLO: limits on percentiles of latencies, and how many requests show one."""

from pydantic import PositiveFloat, model_validator

from tokenpeak.spec import Declaration


def requests_to_see(percentile: str) -> int:
    """The fewest requests that have one beyond the percentile: 100 for p99, 20 for p95, 2 for p50."""
    beyond = 100 - int(percentile.removeprefix("p"))
    return -(-100 // beyond)


LEAST_MS = {"ttft_s": 1.0, "ttfat_s": 1.0, "latency_s": 1.0, "tpot_s": 0.1, "itl_s": 0.01}
"""Lower limits are seconds that were taken for milliseconds: an answer over HTTP takes longer."""


class Slo(Declaration):
    """Limits that a run must hold; the field's name says metric, percentile and unit."""

    ttft_p50_ms: PositiveFloat | None = None
    """Time to first token, p50."""
    ttft_p95_ms: PositiveFloat | None = None
    """Time to first token, p95."""
    ttft_p99_ms: PositiveFloat | None = None
    """Time to first token, p99."""
    ttfat_p50_ms: PositiveFloat | None = None
    """Time to the first token of the answer, after a reasoning model's thoughts, p50; without thoughts, that to the
    first token. A request that only had thoughts does not hold it."""
    ttfat_p95_ms: PositiveFloat | None = None
    """Time to the first token of the answer, p95."""
    ttfat_p99_ms: PositiveFloat | None = None
    """Time to the first token of the answer, p99."""
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

    @model_validator(mode="after")
    def _in_milliseconds(self) -> "Slo":
        for metric, percentile, limit_s in self.limits():
            if limit_s * 1000 < LEAST_MS[metric]:
                name = f"{metric.removesuffix('_s')}_{percentile}_ms"
                raise ValueError(
                    f"{name} is {limit_s * 1000:g} ms, which no server holds; of seconds write {limit_s * 1e6:g}"
                )
        return self

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
