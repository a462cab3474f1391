"""The engine's Prometheus metrics, on the surface of V1 or V0, as `/metrics` shows them.

Source: vllm/v1/metrics/loggers.py and buckets.py (0.32.0), vllm/engine/metrics.py (0.8.5).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import time

from tokenpeak.sim.release import Release
from tokenpeak.sim.sequence import FinishReason, Sequence

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
    """Everything counted, and how it is shown."""

    def __init__(self, release: Release, model_name: str, max_model_len: int) -> None:
        self.release = release
        tokens = _one_two_five(max_model_len)
        self.created = time()
        self.model_name = model_name
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

    def page(self) -> str:
        """The text of `/metrics`."""
        lines: list[str] = []
        labels = {"model_name": self.model_name}
        if self.release.v1:
            labels = {"engine": "0", **labels}
            self._v1(lines, labels)
        else:
            self._v0(lines, labels)
        return "\n".join(lines) + "\n"

    def _v1(self, lines: list[str], labels: Mapping[str, str]) -> None:
        by_reason = [({"reason": "capacity"}, self.waiting), ({"reason": "deferred"}, 0)]
        source = [
            ({"source": "local_compute"}, self.prompt_tokens_computed),
            ({"source": "local_cache_hit"}, self.prompt_tokens_cached),
            ({"source": "external_kv_transfer"}, 0),
        ]
        new = self.release.number >= (0, 32, 0)
        if new:
            self._counter(lines, labels, "estimated_flops_per_gpu", self.flops)
            self._counter(lines, labels, "estimated_read_bytes_per_gpu", self.read_bytes)
        self._gauge(
            lines, labels, "num_requests_running", self.running, "Number of requests in model execution batches."
        )
        self._gauge(lines, labels, "num_requests_waiting", self.waiting, "Number of requests waiting to be processed.")
        if new:
            self._gauges(lines, labels, "num_requests_waiting_by_reason", by_reason)
        self._gauge(lines, labels, self._usage_name(), self.kv_usage, "KV-cache usage. 1 means 100 percent usage.")
        prefix = "prefix_cache" if self.release.number >= (0, 9, 0) else "gpu_prefix_cache"
        self._counter(lines, labels, f"{prefix}_queries", self.prefix_queries)
        self._counter(lines, labels, f"{prefix}_hits", self.prefix_hits)
        self._counter(lines, labels, "num_preemptions", self.preemptions)
        self._counter(lines, labels, "prompt_tokens", self.prompt_tokens)
        if new:
            self._counters(lines, labels, "prompt_tokens_by_source", source)
            self._counter(lines, labels, "prompt_tokens_cached", self.prompt_tokens_cached)
        self._counter(lines, labels, "generation_tokens", self.generation_tokens)
        if self.drafts or self.draft_tokens:
            self._counter(lines, labels, "spec_decode_num_drafts", self.drafts)
            self._counter(lines, labels, "spec_decode_num_draft_tokens", self.draft_tokens)
            self._counter(lines, labels, "spec_decode_num_accepted_tokens", self.accepted_tokens)
        self._finished(lines, labels)
        self._histogram(lines, labels, "request_prompt_tokens", self.prompt_length)
        self._histogram(lines, labels, "request_generation_tokens", self.output_length)
        self._histogram(lines, labels, "iteration_tokens_total", self.step_tokens)
        self._histogram(lines, labels, "request_max_num_generation_tokens", self.max_tokens)
        self._histogram(lines, labels, "request_params_n", self.params_n)
        self._histogram(lines, labels, "request_params_max_tokens", self.max_tokens)
        self._histogram(lines, labels, "time_to_first_token_seconds", self.ttft)
        if self.release.number >= (0, 11, 0):
            self._histogram(lines, labels, "inter_token_latency_seconds", self.itl)
            self._histogram(lines, labels, "request_time_per_output_token_seconds", self.tpot)
        else:
            self._histogram(lines, labels, "time_per_output_token_seconds", self.itl)
        self._phases(lines, labels)
        if new:
            self._histogram(lines, labels, "request_num_preemptions", self.request_preemptions)
            self._histogram(lines, labels, "request_prefill_kv_computed_tokens", self.kv_computed)
        self._info(lines, {**self.cache_config, "engine": "0"})

    def _v0(self, lines: list[str], labels: Mapping[str, str]) -> None:
        self._gauge(lines, labels, "num_requests_running", self.running, "Number of requests currently running on GPU.")
        self._gauge(lines, labels, "num_requests_swapped", 0, "Number of requests swapped to CPU.")
        self._gauge(lines, labels, "num_requests_waiting", self.waiting, "Number of requests waiting to be processed.")
        self._gauge(
            lines, labels, "gpu_cache_usage_perc", self.kv_usage, "GPU KV-cache usage. 1 means 100 percent usage."
        )
        self._gauge(lines, labels, "cpu_cache_usage_perc", 0.0, "CPU KV-cache usage. 1 means 100 percent usage.")
        rate = self.prefix_hits / self.prefix_queries if self.prefix_queries else -1.0
        self._gauge(lines, labels, "gpu_prefix_cache_hit_rate", rate, "GPU prefix cache block hit rate.")
        self._gauge(lines, labels, "cpu_prefix_cache_hit_rate", -1.0, "CPU prefix cache block hit rate.")
        self._counter(lines, labels, "num_preemptions", self.preemptions)
        self._counter(lines, labels, "prompt_tokens", self.prompt_tokens)
        self._counter(lines, labels, "generation_tokens", self.generation_tokens)
        self._finished(lines, labels)
        self._histogram(lines, labels, "iteration_tokens_total", self.step_tokens)
        self._histogram(lines, labels, "time_to_first_token_seconds", self.ttft)
        self._histogram(lines, labels, "time_per_output_token_seconds", self.itl)
        self._phases(lines, labels)
        self._histogram(lines, labels, "request_prompt_tokens", self.prompt_length)
        self._histogram(lines, labels, "request_generation_tokens", self.output_length)
        self._histogram(lines, labels, "request_max_num_generation_tokens", self.max_tokens)
        self._histogram(lines, labels, "request_params_n", self.params_n)
        self._histogram(lines, labels, "request_params_max_tokens", self.max_tokens)
        self._info(lines, self.cache_config)

    def _usage_name(self) -> str:
        return "kv_cache_usage_perc" if self.release.number >= (0, 9, 2) else "gpu_cache_usage_perc"

    def _phases(self, lines: list[str], labels: Mapping[str, str]) -> None:
        self._histogram(lines, labels, "e2e_request_latency_seconds", self.latency)
        self._histogram(lines, labels, "request_queue_time_seconds", self.queue)
        self._histogram(lines, labels, "request_inference_time_seconds", self.inference)
        self._histogram(lines, labels, "request_prefill_time_seconds", self.prefill)
        self._histogram(lines, labels, "request_decode_time_seconds", self.decode)

    def _finished(self, lines: list[str], labels: Mapping[str, str]) -> None:
        reasons = [({"finished_reason": reason}, count) for reason, count in self.finished.items()]
        self._counters(lines, labels, "request_success", reasons)

    def _info(self, lines: list[str], labels: Mapping[str, str]) -> None:
        self._gauge(lines, labels, "cache_config_info", 1.0, "Information of the LLMEngine CacheConfig")

    @staticmethod
    def _labels(*parts: Mapping[str, str]) -> str:
        merged = {name: value for part in parts for name, value in part.items()}
        return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(merged.items())) + "}"

    def _gauge(self, lines: list[str], labels: Mapping[str, str], name: str, value: float, text: str) -> None:
        lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} gauge"]
        lines.append(f"vllm:{name}{self._labels(labels)} {float(value)}")

    def _gauges(
        self, lines: list[str], labels: Mapping[str, str], name: str, values: Iterable[tuple[Mapping[str, str], float]]
    ) -> None:
        lines += [f"# HELP vllm:{name} {_HELP[name]}", f"# TYPE vllm:{name} gauge"]
        lines += [f"vllm:{name}{self._labels(labels, more)} {float(value)}" for more, value in values]

    def _counter(self, lines: list[str], labels: Mapping[str, str], name: str, value: float) -> None:
        self._counters(lines, labels, name, [({}, value)])

    def _counters(
        self, lines: list[str], labels: Mapping[str, str], name: str, values: Iterable[tuple[Mapping[str, str], float]]
    ) -> None:
        values = list(values)
        lines += [f"# HELP vllm:{name}_total {_HELP[name]}", f"# TYPE vllm:{name}_total counter"]
        lines += [f"vllm:{name}_total{self._labels(labels, more)} {float(value)}" for more, value in values]
        lines += [f"# HELP vllm:{name}_created {_HELP[name]}", f"# TYPE vllm:{name}_created gauge"]
        lines += [f"vllm:{name}_created{self._labels(labels, more)} {self.created}" for more, _ in values]

    def _histogram(self, lines: list[str], labels: Mapping[str, str], name: str, histogram: Histogram) -> None:
        lines += [f"# HELP vllm:{name} {_HELP[name]}", f"# TYPE vllm:{name} histogram"]
        total = 0
        for bound, count in zip((*map(str, map(float, histogram.bounds)), "+Inf"), histogram.counts, strict=True):
            total += count
            lines.append(f"vllm:{name}_bucket{self._labels(labels, {'le': bound})} {float(total)}")
        lines.append(f"vllm:{name}_count{self._labels(labels)} {float(total)}")
        lines.append(f"vllm:{name}_sum{self._labels(labels)} {histogram.sum}")
        lines += [f"# HELP vllm:{name}_created {_HELP[name]}", f"# TYPE vllm:{name}_created gauge"]
        lines.append(f"vllm:{name}_created{self._labels(labels)} {self.created}")


_HELP = {
    "estimated_flops_per_gpu": "Estimated number of floating point operations per GPU (for Model Flops Utilization "
    "calculations).",
    "estimated_read_bytes_per_gpu": "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
    "calculations).",
    "num_requests_waiting_by_reason": "Number of waiting requests by reason.",
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "gpu_prefix_cache_queries": "GPU prefix cache queries, in terms of number of queried blocks.",
    "gpu_prefix_cache_hits": "GPU prefix cache hits, in terms of number of cached blocks.",
    "num_preemptions": "Cumulative number of preemption from the engine.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_by_source": "Number of prompt tokens by source.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
    "spec_decode_num_drafts": "Number of spec decoding drafts.",
    "spec_decode_num_draft_tokens": "Number of draft tokens.",
    "spec_decode_num_accepted_tokens": "Number of accepted tokens.",
    "request_success": "Count of successfully processed requests.",
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "time_per_output_token_seconds": "Histogram of time per output token in seconds.",
    "request_time_per_output_token_seconds": "Histogram of time_per_output_token_seconds per request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": "Histogram of new KV tokens computed during prefill (excluding cached "
    "tokens).",
}
