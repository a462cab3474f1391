"""Preemptions, prefix cache hits, queue and KV cache usage, from the engine's /metrics page, each second and by run.

Names are those of vLLM's V1 engine, of V0 (≤0.8) where it differs, and of llama.cpp's server; a metric that a version
does not export is None.
"""

import asyncio
import io
import re
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tokenpeak.http_answer import HttpAnswerError, ask
from tokenpeak.records import EngineCounters, Series

PERIOD_S = 1.0
PAGE_LIMIT_BYTES = 4 << 20
"""A page of vLLM's with 16 engines has 0.4 MB; one of this size takes about a second to read."""
PAGE_LIMIT_S = 5.0
LINE_LIMIT_CHARACTERS = 16 << 10
"""The library's parser takes the square of a line's length: 40 s for one of 2 MB."""

VALUE_LIMIT = 1e15

_GAUGES = {
    "requests_running": ("vllm:num_requests_running", "llamacpp:requests_processing"),
    "requests_waiting": ("vllm:num_requests_waiting", "llamacpp:requests_deferred"),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    # V0's own
    "requests_swapped": ("vllm:num_requests_swapped",),
    "cpu_cache_usage": ("vllm:cpu_cache_usage_perc",),
}
_SHARES = ("kv_cache_usage", "cpu_cache_usage")
_COUNTERS = {
    "prompt_tokens": ("vllm:prompt_tokens",),
    "generation_tokens": ("vllm:generation_tokens",),
    "preemptions": ("vllm:num_preemptions",),
    "prefix_cache_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "requests_finished": ("vllm:request_success",),
    "drafts": ("vllm:spec_decode_num_drafts",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens",),
    "process_start_time_s": ("process_start_time_seconds",),
}
_WANTED = {name: key for table in (_GAUGES, _COUNTERS) for key, names in table.items() for name in names}
_NAME = re.compile(r"\s*+([\w:]++)")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One scrape; `at_s` is `perf_counter` seconds, `values` holds what this version exports."""

    at_s: float
    values: dict[str, float]


def parse(text: str) -> dict[str, float]:
    """Sums over engines and labels of the metrics known here; usage shares are averaged instead.

    A value that is no count (NaN, infinite, negative) leaves its metric out. Raises ValueError for what is no page.
    """
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    broken: set[str] = set()
    for family in _families(text):
        key = _key_of(family.name)
        if key is None:
            continue
        for sample in family.samples:
            if not 0 <= sample.value <= VALUE_LIMIT:
                broken.add(key)
                continue
            sums[key] = sums.get(key, 0.0) + sample.value
            counts[key] = counts.get(key, 0) + 1
    for share in sums.keys() & {*_SHARES}:
        sums[share] /= counts[share]
    return {key: value for key, value in sums.items() if key not in broken}


def _key_of(name: str) -> str | None:
    return _WANTED.get(name) or _WANTED.get(name.removesuffix("_total"))


def _wanted_lines(text: str) -> Iterator[str]:
    """The samples of the metrics known here; ValueError for one that is no line of an engine's."""
    for line in io.StringIO(text):
        name = _NAME.match(line[:LINE_LIMIT_CHARACTERS])
        if name is None or _key_of(name[1]) is None:
            continue
        if len(line) > LINE_LIMIT_CHARACTERS:
            raise ValueError(f"no page of metrics: {name[1]} has a line of {len(line):,} characters")
        yield line


def _families(text: str) -> Iterator[Metric]:
    try:
        yield from text_string_to_metric_families("".join(_wanted_lines(text)))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        # The parser meets many pages that are none in its own code.
        raise ValueError(f"no page of metrics: {error!r}"[:200]) from error


class Scraper:
    """Scrapes once a second from `start` to `stop`, in a thread of its own with an event loop.

    A loop, because only there the whole of a request can be given a time limit.
    """

    def __init__(self, url: str, headers: dict[str, str], *, verify: ssl.SSLContext) -> None:
        self._url = url
        self._client = httpx.AsyncClient(headers=headers, timeout=PAGE_LIMIT_S, verify=verify, trust_env=False)
        self._samples: list[Sample] = []
        self._enough = threading.Event()
        self._working: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scraper", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        asyncio.run_coroutine_threadsafe(self._work(), self._loop)

    def stop(self) -> None:
        """Take no more samples."""
        if self._enough.is_set():
            return
        self._enough.set()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(2 * PAGE_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PAGE_LIMIT_S)
        self._loop.close()

    async def _close(self) -> None:
        # Its own task alone: httpx ends those that it began in turn, and leaves none behind that has not run yet.
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        await self._client.aclose()

    def sample(self) -> Sample | None:
        """One scrape now, kept with the others; None when the server has no usable /metrics."""
        return asyncio.run_coroutine_threadsafe(self._sample(), self._loop).result()

    async def _sample(self) -> Sample | None:
        try:
            answer = await ask(self._client, self._url, limit_bytes=PAGE_LIMIT_BYTES, limit_s=PAGE_LIMIT_S)
            values = parse(answer.text) if answer.status == httpx.codes.OK else {}
        except (HttpAnswerError, ValueError):
            return None
        if not values:
            return None
        taken = Sample(at_s=time.perf_counter(), values=values)
        self._samples.append(taken)
        return taken

    async def _work(self) -> None:
        self._working = asyncio.current_task()
        following = time.perf_counter()
        while True:
            await asyncio.sleep(max(0.0, following - time.perf_counter()))
            following = max(following + PERIOD_S, time.perf_counter())
            await self._sample()

    def between(self, begin_s: float, end_s: float) -> list[Sample]:
        """The samples of a span of `perf_counter` time, with the last one before it."""
        samples = sorted(self._samples, key=lambda sample: sample.at_s)
        before = [sample for sample in samples if sample.at_s < begin_s]
        return before[-1:] + [sample for sample in samples if begin_s <= sample.at_s <= end_s]

    def drained(self, deadline_s: float) -> bool | None:
        """Wait until nothing runs or waits on the engine; None: it does not say; False: still busy at the deadline."""
        end = time.perf_counter() + deadline_s
        while True:
            taken = self.sample()
            if taken is None or "requests_running" not in taken.values:
                return None
            if taken.values["requests_running"] + taken.values.get("requests_waiting", 0) == 0:
                return True
            if time.perf_counter() > end:
                return False
            self._enough.wait(0.1)

    def series(self, origin_s: float) -> Series:
        """All samples on the clock that began at `origin_s`; counters as they are, rates of tokens besides."""
        samples = sorted(self._samples, key=lambda sample: sample.at_s)
        columns: dict[str, tuple[float | None, ...]] = {}
        for name in (*_GAUGES, "prompt_tokens", "generation_tokens", "preemptions"):
            values = tuple(sample.values.get(name) for sample in samples)
            if any(value is not None for value in values):
                columns[name] = values
        return Series(t_s=tuple(round(sample.at_s - origin_s, 3) for sample in samples), columns=columns)


def counters(samples: list[Sample]) -> EngineCounters | None:
    """The engine's counters over the span that `samples` cover; None when there are fewer than two."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    span = last.at_s - first.at_s
    inside = samples[1:]

    def grew(name: str) -> float | None:
        if name not in first.values or name not in last.values:
            return None
        return last.values[name] - first.values[name]

    def rate(name: str) -> float | None:
        amount = grew(name)
        return None if amount is None or span <= 0 else amount / span

    def gauge(name: str) -> tuple[float | None, float | None]:
        values = [sample.values[name] for sample in inside if name in sample.values]
        return (sum(values) / len(values), max(values)) if values else (None, None)

    queries, hits, preemptions = grew("prefix_cache_queries"), grew("prefix_cache_hits"), grew("preemptions")
    running, waiting, kv = gauge("requests_running"), gauge("requests_waiting"), gauge("kv_cache_usage")
    swapped, cpu = gauge("requests_swapped"), gauge("cpu_cache_usage")
    drafts, drafted, accepted = grew("drafts"), grew("draft_tokens"), grew("accepted_tokens")
    return EngineCounters(
        prompt_tok_per_s=rate("prompt_tokens"),
        generation_tok_per_s=rate("generation_tokens"),
        prefix_cache_hit_rate=None if not queries or hits is None else hits / queries,
        preemptions=None if preemptions is None else int(preemptions),
        running_mean=running[0],
        running_max=running[1],
        waiting_mean=waiting[0],
        waiting_max=waiting[1],
        kv_cache_usage_mean=kv[0],
        kv_cache_usage_max=kv[1],
        swapped_mean=swapped[0],
        swapped_max=swapped[1],
        cpu_cache_usage_mean=cpu[0],
        cpu_cache_usage_max=cpu[1],
        draft_acceptance_rate=None if not drafted or accepted is None else accepted / drafted,
        draft_accepted_length=None if not drafts or accepted is None else 1 + accepted / drafts,
    )


def restarted(samples: list[Sample]) -> bool:
    """Whether a counter fell or the process's start time changed: the engine was started again meanwhile."""
    for before, after in pairwise(samples):
        start = "process_start_time_s"
        if start in before.values and start in after.values and before.values[start] != after.values[start]:
            return True
        if any(
            after.values.get(name, 0) < before.values.get(name, 0)
            for name in ("generation_tokens", "requests_finished")
            if name in after.values
        ):
            return True
    return False
