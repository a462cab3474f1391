"""Metrics of the simulated engine: what it counts, and the text of `/metrics`.

Buckets are those of vllm/v1/metrics/buckets.py (0.32.0).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import time

from tokenpeak.sim.sequence import FinishReason, Sequence
from tokenpeak.sim.settings import Release

_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


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
        self.cache_config: dict[str, str] = {}
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.prompt_tokens_computed = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.draft_tokens = 0
        self.drafts = 0
        self.accepted_tokens = 0
        self.flops = 0.0
        self.read_bytes = 0.0
        self.write_bytes = 0.0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0}
        self.ttft = Histogram(_TTFT)
        self.itl = Histogram(_ITL)
        self.tpot = Histogram(_ITL)
        self.latency = Histogram(_LATENCY)
        self.queue = Histogram(_LATENCY)
        self.inference = Histogram(_LATENCY)
        self.prefill = Histogram(_LATENCY)
        self.decode = Histogram(_LATENCY)
        self.step_tokens = Histogram(_STEP)
        self.prompt_length = Histogram(tokens)
        self.output_length = Histogram(tokens)
        self.max_tokens = Histogram(tokens)
        self.kv_computed = Histogram(tokens)
        self.request_preemptions = Histogram(_PREEMPTIONS)
        self.params_n = Histogram((1, 2, 5, 10, 20))

    def sequence_finished(self, sequence: Sequence, reason: FinishReason, now_s: float) -> None:
        """Observe a sequence that has ended by itself; one that was aborted is only counted."""
        self.finished[reason] += 1
        if reason == "abort" or sequence.scheduled_s is None or sequence.first_token_s is None:
            return
        output = sequence.output_tokens
        decode_s = now_s - sequence.first_token_s
        self.latency.observe(now_s - sequence.arrived_s)
        self.queue.observe(sequence.scheduled_s - sequence.arrived_s)
        self.inference.observe(now_s - sequence.scheduled_s)
        self.prefill.observe(sequence.first_token_s - sequence.scheduled_s)
        self.decode.observe(decode_s)
        if output > 1:
            self.tpot.observe(decode_s / (output - 1))
        self.prompt_length.observe(sequence.prompt_tokens)
        self.output_length.observe(output)
        self.max_tokens.observe(sequence.max_tokens)
        self.params_n.observe(1)
        self.kv_computed.observe(sequence.prompt_tokens - (sequence.cached_tokens or 0))
        self.request_preemptions.observe(sequence.preemptions)


Samples = Iterable[tuple[Mapping[str, str], float]]

_CACHE_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")
_REASONS_SINCE_0_32 = ("error", "repetition")


def metrics_page(counters: Counters) -> str:
    """The whole page."""
    page = _MetricsText(counters.model_name, counters.created, engine="0" if counters.release.v1 else None)
    if counters.release.v1:
        _v1(page, counters)
    else:
        _v0(page, counters)
    return "\n".join(page.lines) + "\n"


class _MetricsText:
    """Lines in Prometheus' text format, all with the model's name as a label."""

    def __init__(self, model_name: str, created: float, *, engine: str | None) -> None:
        self.lines: list[str] = []
        self._created = created
        self._labels = {"model_name": model_name} | ({"engine": engine} if engine is not None else {})

    def gauge(self, name: str, value: float | Samples, help_text: str, labels: Mapping[str, str] | None = None) -> None:
        """A gauge; `labels` instead of the usual ones."""
        self._head(name, "gauge", help_text)
        self._samples(name, value, labels)

    def counter(self, name: str, value: float | Samples, help_text: str) -> None:
        """A counter, and since when it counts."""
        self._head(f"{name}_total", "counter", help_text)
        self._samples(f"{name}_total", value)
        since = self._created if isinstance(value, int | float) else [(labels, self._created) for labels, _ in value]
        self._head(f"{name}_created", "gauge", help_text)
        self._samples(f"{name}_created", since)

    def histogram(self, name: str, histogram: Histogram, help_text: str) -> None:
        """A histogram."""
        self._head(name, "histogram", help_text)
        total = 0
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            total += count
            self._samples(f"{name}_bucket", [({"le": "+Inf" if bound is None else str(float(bound))}, total)])
        self._samples(f"{name}_count", total)
        self._samples(f"{name}_sum", histogram.sum)
        self._head(f"{name}_created", "gauge", help_text)
        self._samples(f"{name}_created", self._created)

    def _head(self, name: str, kind: str, help_text: str) -> None:
        self.lines += [f"# HELP vllm:{name} {help_text}", f"# TYPE vllm:{name} {kind}"]

    def _samples(self, name: str, value: float | Samples, labels: Mapping[str, str] | None = None) -> None:
        for more, number in [({}, value)] if isinstance(value, int | float) else value:
            every = {**(self._labels if labels is None else labels), **more}
            text = ",".join(f'{key}="{every[key]}"' for key in sorted(every))
            self.lines.append(f"vllm:{name}{{{text}}} {float(number)}")


def _v1(page: _MetricsText, counters: Counters) -> None:
    number = counters.release.number
    new = number >= (0, 32, 0)
    if new:
        _work(page, counters)
    _queues(page, counters, "Number of requests in model execution batches.")
    if new:
        waiting = [({"reason": "capacity"}, counters.waiting), ({"reason": "deferred"}, 0)]
        page.gauge("num_requests_waiting_by_reason", waiting, "Number of waiting requests by reason.")
        states = [({"sleep_state": state}, float(state == "awake")) for state in _SLEEP_STATES]
        page.gauge("engine_sleep_state", states, "Engine sleep state; awake = 0 means engine is sleeping.")
    usage = "kv_cache_usage_perc" if number >= (0, 9, 2) else "gpu_cache_usage_perc"
    page.gauge(usage, counters.kv_usage, "KV-cache usage. 1 means 100 percent usage.")
    prefix = "prefix_cache" if number >= (0, 9, 2) else "gpu_prefix_cache"
    page.counter(f"{prefix}_queries", counters.prefix_queries, "Prefix cache queries, in terms of number of queried "
                 "tokens.")  # fmt: skip
    page.counter(f"{prefix}_hits", counters.prefix_hits, "Prefix cache hits, in terms of number of cached tokens.")
    if new:
        for name in ("external_prefix_cache", "mm_cache"):
            page.counter(f"{name}_queries", 0, f"Queries of the {name}.")
            page.counter(f"{name}_hits", 0, f"Hits of the {name}.")
    page.counter("num_preemptions", counters.preemptions, "Cumulative number of preemption from the engine.")
    page.counter("prompt_tokens", counters.prompt_tokens, "Number of prefill tokens processed.")
    if new:
        _prompt_sources(page, counters)
    page.counter("generation_tokens", counters.generation_tokens, "Number of generation tokens processed.")
    if counters.speculative:
        page.counter("spec_decode_num_drafts", counters.drafts, "Number of spec decoding drafts.")
        page.counter("spec_decode_num_draft_tokens", counters.draft_tokens, "Number of draft tokens.")
        page.counter("spec_decode_num_accepted_tokens", counters.accepted_tokens, "Number of accepted tokens.")
    _finished(page, counters, _REASONS_SINCE_0_32 if new else ())
    page.histogram("request_prompt_tokens", counters.prompt_length, "Number of prefill tokens processed.")
    page.histogram("request_generation_tokens", counters.output_length, "Number of generation tokens processed.")
    page.histogram("iteration_tokens_total", counters.step_tokens, "Histogram of number of tokens per engine_step.")
    _parameters(page, counters)
    page.histogram("time_to_first_token_seconds", counters.ttft, "Histogram of time to first token in seconds.")
    if number >= (0, 11, 0):
        page.histogram("inter_token_latency_seconds", counters.itl, "Histogram of inter-token latency in seconds.")
        page.histogram("request_time_per_output_token_seconds", counters.tpot, "Histogram of "
                       "time_per_output_token_seconds per request.")  # fmt: skip
    if number < (0, 13, 0):
        page.histogram("time_per_output_token_seconds", counters.itl, "Histogram of time per output token in seconds.")
    _phases(page, counters)
    if new:
        page.histogram("request_num_preemptions", counters.request_preemptions, "Histogram of the number of times a "
                       "request was preempted.")  # fmt: skip
        page.histogram("request_prefill_kv_computed_tokens", counters.kv_computed, "Histogram of new KV tokens "
                       "computed during prefill (excluding cached tokens).")  # fmt: skip
    labels = {**counters.cache_config, "engine": "0"}
    page.gauge("cache_config_info", 1.0, "Information of the LLMEngine CacheConfig", labels)


def _v0(page: _MetricsText, counters: Counters) -> None:
    _queues(page, counters, "Number of requests currently running on GPU.")
    page.gauge("num_requests_swapped", 0, "Number of requests swapped to CPU.")
    page.gauge("gpu_cache_usage_perc", counters.kv_usage, "GPU KV-cache usage. 1 means 100 percent usage.")
    page.gauge("cpu_cache_usage_perc", 0, "CPU KV-cache usage. 1 means 100 percent usage.")
    rate = counters.prefix_hits / counters.prefix_queries if counters.prefix_queries else -1.0
    page.gauge("cpu_prefix_cache_hit_rate", -1.0, "CPU prefix cache block hit rate.")
    page.gauge("gpu_prefix_cache_hit_rate", rate, "GPU prefix cache block hit rate.")
    page.counter("num_preemptions", counters.preemptions, "Cumulative number of preemption from the engine.")
    page.counter("prompt_tokens", counters.prompt_tokens, "Number of prefill tokens processed.")
    page.counter("generation_tokens", counters.generation_tokens, "Number of generation tokens processed.")
    page.histogram("iteration_tokens_total", counters.step_tokens, "Histogram of number of tokens per engine_step.")
    page.histogram("time_to_first_token_seconds", counters.ttft, "Histogram of time to first token in seconds.")
    page.histogram("time_per_output_token_seconds", counters.itl, "Histogram of time per output token in seconds.")
    _phases(page, counters)
    page.histogram("request_prompt_tokens", counters.prompt_length, "Number of prefill tokens processed.")
    page.histogram("request_generation_tokens", counters.output_length, "Number of generation tokens processed.")
    _parameters(page, counters)
    _finished(page, counters, ())
    page.gauge("cache_config_info", 1.0, "Information of the LLMEngine CacheConfig", counters.cache_config)


_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


def _work(page: _MetricsText, counters: Counters) -> None:
    end = "per GPU (for Model Flops Utilization calculations)."
    page.counter("estimated_flops_per_gpu", counters.flops, f"Estimated number of floating point operations {end}")
    page.counter(
        "estimated_read_bytes_per_gpu", counters.read_bytes, f"Estimated number of bytes read from memory {end}"
    )
    page.counter("estimated_write_bytes_per_gpu", counters.write_bytes, f"Estimated number of bytes written to memory "
                 f"{end}")  # fmt: skip


def _queues(page: _MetricsText, counters: Counters, running: str) -> None:
    page.gauge("num_requests_running", counters.running, running)
    page.gauge("num_requests_waiting", counters.waiting, "Number of requests waiting to be processed.")


def _prompt_sources(page: _MetricsText, counters: Counters) -> None:
    sources = [
        ({"source": "local_compute"}, counters.prompt_tokens_computed),
        ({"source": "local_cache_hit"}, counters.prompt_tokens_cached),
        ({"source": "external_kv_transfer"}, 0),
    ]
    page.counter("prompt_tokens_by_source", sources, "Number of prompt tokens by source.")
    cached = counters.prompt_tokens_cached
    page.counter("prompt_tokens_cached", cached, "Number of cached prompt tokens (local + external).")
    tiers = [({"source": tier}, cached if tier == "device" else 0) for tier in _CACHE_TIERS]
    page.counter(
        "prompt_tokens_cached_by_source", tiers, "Prefix-cache hit tokens by the cache tier that supplied them."
    )


def _finished(page: _MetricsText, counters: Counters, more: tuple[str, ...]) -> None:
    reasons = {**counters.finished, **dict.fromkeys(more, 0)}
    samples = [({"finished_reason": reason}, count) for reason, count in reasons.items()]
    page.counter("request_success", samples, "Count of successfully processed requests.")


def _parameters(page: _MetricsText, counters: Counters) -> None:
    page.histogram("request_max_num_generation_tokens", counters.max_tokens, "Histogram of maximum number of requested "
                   "generation tokens.")  # fmt: skip
    page.histogram("request_params_n", counters.params_n, "Histogram of the n request parameter.")
    page.histogram("request_params_max_tokens", counters.max_tokens, "Histogram of the max_tokens request parameter.")


def _phases(page: _MetricsText, counters: Counters) -> None:
    page.histogram("e2e_request_latency_seconds", counters.latency, "Histogram of e2e request latency in seconds.")
    page.histogram(
        "request_queue_time_seconds", counters.queue, "Histogram of time spent in WAITING phase for request."
    )
    page.histogram("request_inference_time_seconds", counters.inference, "Histogram of time spent in RUNNING phase for "
                   "request.")  # fmt: skip
    page.histogram("request_prefill_time_seconds", counters.prefill, "Histogram of time spent in PREFILL phase for "
                   "request.")  # fmt: skip
    page.histogram("request_decode_time_seconds", counters.decode, "Histogram of time spent in DECODE phase for "
                   "request.")  # fmt: skip
