"""Metrics of the simulated engine: what it counts, and the text of `/metrics`, by release.

Of vLLM's series those that TokenPeak and dashboards read, under the names of V1 or V0.
Source: vllm/v1/metrics/{loggers,buckets}.py (0.32.0; compared with the running server), vllm/engine/metrics.py (0.8.5).
"""

from bisect import bisect_left
from collections.abc import Mapping
from time import time

from tokenpeak.sim.sequence import FinishReason, Sequence
from tokenpeak.sim.settings import Release

_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


def _one_two_five(limit: int) -> tuple[float, ...]:
    series = (mantissa * 10**exponent for exponent in range(9) for mantissa in (1, 2, 5))
    return tuple(value for value in series if value <= limit)


class Histogram:
    """Counts by bucket, and the sum of what was observed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Counters:
    """Everything counted since the start."""

    def __init__(self, release: Release, model_name: str, max_model_len: int, *, speculative: bool) -> None:
        self.release = release
        tokens = _one_two_five(max_model_len)
        self.created = time()
        self.model_name = model_name
        self.speculative = speculative
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.draft_tokens = 0
        self.drafts = 0
        self.accepted_tokens = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0}
        self.ttft = Histogram(_TTFT)
        self.itl = Histogram(_ITL)
        self.tpot = Histogram(_ITL)
        self.latency = Histogram(_LATENCY)
        self.queue = Histogram(_LATENCY)
        self.prompt_length = Histogram(tokens)
        self.output_length = Histogram(tokens)

    def sequence_finished(self, sequence: Sequence, reason: FinishReason, now_s: float) -> None:
        """Observe a sequence that has ended by itself; one that was aborted is only counted."""
        self.finished[reason] += 1
        if reason == "abort" or sequence.scheduled_s is None or sequence.first_token_s is None:
            return
        output = sequence.output_tokens
        self.latency.observe(now_s - sequence.arrived_s)
        self.queue.observe(sequence.scheduled_s - sequence.arrived_s)
        if output > 1:
            self.tpot.observe((now_s - sequence.first_token_s) / (output - 1))
        self.prompt_length.observe(sequence.prompt_tokens)
        self.output_length.observe(output)


def metrics_page(counters: Counters) -> str:
    """The whole page."""
    v1, number = counters.release.v1, counters.release.number
    renamed = v1 and number >= (0, 9, 2)
    prefix = "prefix_cache" if renamed else "gpu_prefix_cache"
    page = _MetricsText(counters)
    page.gauge("num_requests_running", counters.running)
    page.gauge("num_requests_waiting", counters.waiting)
    page.gauge("kv_cache_usage_perc" if renamed else "gpu_cache_usage_perc", counters.kv_usage)
    page.counter("num_preemptions", counters.preemptions)
    page.counter("prompt_tokens", counters.prompt_tokens)
    page.counter("generation_tokens", counters.generation_tokens)
    if v1:
        page.counter(f"{prefix}_queries", counters.prefix_queries)
        page.counter(f"{prefix}_hits", counters.prefix_hits)
    else:
        page.gauge("num_requests_swapped", 0)
        page.gauge("cpu_cache_usage_perc", 0)
        hit_rate = counters.prefix_hits / counters.prefix_queries if counters.prefix_queries else -1.0
        page.gauge(f"{prefix}_hit_rate", hit_rate)
    if v1 and counters.speculative:
        page.counter("spec_decode_num_drafts", counters.drafts)
        page.counter("spec_decode_num_draft_tokens", counters.draft_tokens)
        page.counter("spec_decode_num_accepted_tokens", counters.accepted_tokens)
    page.counter("request_success", counters.finished)
    page.histogram("request_prompt_tokens", counters.prompt_length)
    page.histogram("request_generation_tokens", counters.output_length)
    page.histogram("time_to_first_token_seconds", counters.ttft)
    if v1 and number >= (0, 11, 0):
        page.histogram("inter_token_latency_seconds", counters.itl)
        page.histogram("request_time_per_output_token_seconds", counters.tpot)
    if number < (0, 13, 0):
        page.histogram("time_per_output_token_seconds", counters.itl)
    page.histogram("e2e_request_latency_seconds", counters.latency)
    page.histogram("request_queue_time_seconds", counters.queue)
    return "\n".join(page.lines) + "\n"


class _MetricsText:
    """Lines in Prometheus' text format, all with the model's name as a label."""

    def __init__(self, counters: Counters) -> None:
        self.lines: list[str] = []
        self._created = counters.created
        self._labels = {"engine": "0"} if counters.release.v1 else {}
        self._labels["model_name"] = counters.model_name

    def gauge(self, name: str, value: float) -> None:
        """A gauge."""
        self._series(name, "gauge", {"": value})

    def counter(self, name: str, value: float | Mapping[str, int]) -> None:
        """A counter, by reason where it is several, and since when it counts."""
        by_reason = value if isinstance(value, Mapping) else {"": value}
        labelled = {f'finished_reason="{reason}"' if reason else "": count for reason, count in by_reason.items()}
        self._series(f"{name}_total", "counter", labelled)
        self._series(f"{name}_created", "gauge", dict.fromkeys(labelled, self._created))

    def histogram(self, name: str, histogram: Histogram) -> None:
        """A histogram."""
        total, buckets = 0, {}
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            total += count
            buckets['le="+Inf"' if bound is None else f'le="{float(bound)}"'] = total
        self.lines.append(f"# TYPE vllm:{name} histogram")
        self._samples(f"{name}_bucket", buckets)
        self._samples(f"{name}_count", {"": total})
        self._samples(f"{name}_sum", {"": histogram.sum})
        self._series(f"{name}_created", "gauge", {"": self._created})

    def _series(self, name: str, kind: str, values: Mapping[str, float]) -> None:
        self.lines.append(f"# TYPE vllm:{name} {kind}")
        self._samples(name, values)

    def _samples(self, name: str, values: Mapping[str, float]) -> None:
        common = [f'{label}="{text}"' for label, text in self._labels.items()]
        for label, value in values.items():
            self.lines.append(
                f"vllm:{name}{{{','.join(sorted([*common, label] if label else common))}}} {float(value)}"
            )
