"""What the engine counts; metrics_page.py shows it.

Buckets are those of vllm/v1/metrics/buckets.py (0.32.0).
"""

from bisect import bisect_left
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
