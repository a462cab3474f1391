"""Observation of production before and after an apply: its definition, and its own metrics over a while.

Of the definition what may be secret is left out. Metrics are cumulative counts of requests, TTFT, TPOT and failures,
under the names of vLLM's V1 engine, or of V0 where it differs; a histogram's column NAME_le:B counts values up to B.
Where the inventory allows a test load, completions are asked for meanwhile, one after the other on a few connections:
production's own metrics measure them, as they do its clients' requests.
"""

from __future__ import annotations

import math
import random
import threading
import time
from dataclasses import replace
from typing import Mapping

from tokenpeak.node import rights
from tokenpeak.node.engine import serving
from tokenpeak.node.engine.serving import ForeignServerError, MetricsPage
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import hidden_env, hidden_words, shown_answer
from tokenpeak.node.production import production
from tokenpeak.node.production.answering import OfProduction
from tokenpeak.node.production.manager import checksum, text
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.put_back import APPLIED
from tokenpeak.node.protocol.answers import AppliedState, DescribeAnswer, ObserveAnswer
from tokenpeak.node.protocol.parts import Series
from tokenpeak.node.protocol.requests import OBSERVE_MAX_S, ObserveRequest

PROMPT_WORDS = 100
OUTPUT_TOKENS = 32
TIMEOUT_S = 120.0
_PAUSE_S = 0.5
_WORDS = ("river", "stone", "morning", "letter", "window", "garden", "winter", "paper", "engine", "signal")
HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "tpot": (
        "vllm:request_time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
}
"""Column → metrics, of which the first that the page has counts: TPOT by requests where that is measured."""
COUNTERS = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
}
TRAFFIC_HISTOGRAMS = {
    "prompts_tokens": ("vllm:request_prompt_tokens",),
    "answers_tokens": ("vllm:request_generation_tokens",),
}
TRAFFIC = {
    "requests_finished": ("vllm:request_success_total",),
    "prompts": ("vllm:request_prompt_tokens_count",),
    "prompts_tokens": ("vllm:request_prompt_tokens_sum",),
    "answers_tokens": ("vllm:request_generation_tokens_sum",),
    "queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
}
"""Of each reading; histograms are read at the first and the last."""
STARTED = "process_start_time_seconds"
PART_OF_TIME = 0.05
"""Readings take at most that much of the time: each costs production some of its processor."""
READINGS_MAX = 20_000
"""All of them are held in memory until the answer."""
SILENT_S = 5.0
"""After so long without its page production counts as gone."""


def describe(state: State, declaration: Json, *, limited: bool = False) -> DescribeAnswer:
    """Describe what an apply would change; `problem` says why none is possible (to a restricted user)."""
    declared = declaration.get("production") or {"manager": "none"}
    record = records.read_if_possible(state)
    answer = DescribeAnswer(
        test_load=bool((declaration.get("bake") or {}).get("test_load")),
        applied=_applied(state),
        unconfirmed=str(record["trial_id"]) if record and "apply" in record else None,
    )
    try:
        running_production, unwell = production.look(declared, state)
        manager = make_manager(declared, state)
        described = manager.describe()
        command = manager.command(described)
    except ScriptError as error:
        return replace(answer, problem=error.text)
    problem = unwell
    if record is not None:
        problem = (
            f"{record['trial_id']} of {record['holder']} has the node: wait for its end, or run `tokenpeak restore`."
        )
    elif not running_production.running:
        problem = "Production does not run: start it as usual, then apply."
    elif problem is None and limited:
        problem = rights.root_problem(manager)
        problem = problem or rights.user_problem(manager, described, command)
    words = manager.shown_words(command)
    place = manager.place(described["own"])
    return replace(
        answer,
        production=running_production,
        problem=problem,
        place=place,
        words=tuple(hidden_words(words)),
        program=command.program,
        env=hidden_env(command.env),
        image=command.image,
        text=text(place, command, words),
        sha256=checksum(described),
        **(_reported(declared, state) if running_production.running and running_production.url and not unwell else {}),
    )


def _reported(declared: Json, state: State) -> Json:
    """The version and the longest context that production itself reports."""
    url, check = str(declared["url"]), OfProduction(make_manager(declared, state))
    try:
        version = serving.reported_version(url, check=check)
        key, ca_file = serving.key_from_file(declared.get("api_key_file")), declared.get("ca_file")
        answer = serving.request(f"{url}/v1/models", key=key, check=check, ca_file=ca_file)
        longest = serving.parsed(answer.text)["data"][0].get("max_model_len")
    except ForeignServerError:
        return {}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        longest = None
    return {"engine_version": version, "max_model_len": longest if type(longest) is int and longest >= 0 else None}


def _applied(state: State) -> AppliedState | None:
    """The last apply that was confirmed; None where there was none, or nothing readable says so."""
    try:
        record = state.read(APPLIED)
        if record is None:
            return None
        apply = record["apply"]
        return AppliedState(
            apply_id=apply["id"],
            holder=record["holder"],
            at_unix_s=record.get("armed_at_unix_s"),
            was_sha256=apply["was_sha256"],
            new_sha256=apply["new_sha256"],
            was_text=apply["was_text"],
            new_text=apply["new_text"],
        )
    except (ScriptError, KeyError):
        return None


class BakeLoad:
    """So many clients that ask for what production gives while it runs; who answers is checked on each connection."""

    def __init__(self, declared: Json, check: OfProduction, concurrency: int) -> None:
        self._url = str(declared.get("url"))
        self._kind = declared.get("answers_with")
        self._ca_file: str | None = declared.get("ca_file")
        self._key_file: str | None = declared.get("api_key_file")
        self._check = check
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(concurrency)]
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.sent = 0
        self.failed = 0
        self.failure: str | None = None

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _work(self) -> None:
        model: str | None = None
        while not self._is_over.is_set():
            try:
                key = serving.key_from_file(self._key_file)
                model = model or serving.served_model(self._url, key, TIMEOUT_S, self._check, self._ca_file)
                failure = self._ask(model, key) if model else "production names no model"
            except ScriptError as error:
                failure = error.text
            self._count(failure)
            if failure is not None:
                self._is_over.wait(_PAUSE_S)

    def _ask(self, model: str, key: str | None) -> str | None:
        """None when production answered a prompt; otherwise what came instead."""
        # A prompt of its own each time: nothing of it is in a cache.
        words = " ".join(random.choice(_WORDS) for _ in range(PROMPT_WORDS))  # noqa: S311
        prompt = f"{random.randrange(1 << 60):x} {words}"  # noqa: S311
        body: Json = {"model": model}
        if self._kind not in ("embedding", "rerank"):
            body.update(max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
        if self._kind == "embedding":
            path, body["input"] = "/v1/embeddings", prompt
        elif self._kind == "rerank":
            path = "/v1/rerank"
            body.update(query=words, documents=[prompt])
        elif self._kind == "chat":
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt}]
        else:
            path, body["prompt"] = "/v1/completions", prompt
        answer = serving.request(f"{self._url}{path}", "POST", body, key, TIMEOUT_S, self._check, self._ca_file)
        if answer.status == 200:
            return None
        return f"HTTP {answer.status}: {shown_answer(answer.text)}" if answer.status else answer.text

    def _count(self, failure: str | None) -> None:
        with self._lock:
            self.sent += 1
            if failure is not None:
                self.failed += 1
                self.failure = self.failure or failure


def observe(state: State, declaration: Json, request: ObserveRequest) -> ObserveAnswer:
    """Production's counts over `seconds`; ends early where production does."""
    declared = declaration.get("production") or {"manager": "none"}
    url = declared.get("url")
    if not url:
        raise ScriptError("declaration", "tokenpeak_production has no url, so that its metrics cannot be read: add it.")
    if request.settle_s + request.seconds > OBSERVE_MAX_S:
        raise ScriptError("request", f"An observation takes at most {OBSERVE_MAX_S:g} s.")
    if request.seconds > READINGS_MAX * request.period_s:
        raise ScriptError(
            "request", f"An observation has at most {READINGS_MAX} readings: take a longer period_s than it has."
        )
    if request.concurrency and not (declaration.get("bake") or {}).get("test_load"):
        raise ScriptError("refused", "The inventory allows no test load: tokenpeak_bake: {test_load: true} does.")
    manager = make_manager(declared, state)
    check = OfProduction(manager)
    load = BakeLoad(declared, check, request.concurrency)
    rows: list[tuple[float, dict[str, float]]] = []
    ended: str | None = None
    pages: list[tuple[float, MetricsPage]] = []
    least_s = math.inf
    with load:
        time.sleep(request.settle_s)
        began = answered = time.monotonic()
        while True:
            now = time.monotonic()
            page = serving.read_metrics(url, check if not rows else None, declared.get("ca_file"))
            if page is not None:
                answered, at = now, time.time()
                pages = [*pages[:1], (at, page)]
                rows.append((at, _traffic(page, at) if request.traffic else columns(page)))
            elif now - answered > SILENT_S:
                runs = "does not answer at" if manager.is_running() else "does not run any more, nor answer at"
                ended = f"Production {runs} {url}/metrics."
                break
            if now - began >= request.seconds:
                break
            # What a reading takes beyond the shortest one it waited for a processor, and cost production nothing.
            least_s = min(least_s, time.monotonic() - now)
            pause_s = max(request.period_s, least_s / PART_OF_TIME if request.traffic else 0.0)
            time.sleep(max(0.0, min(pause_s, began + request.seconds - now)))
    if not rows and ended is None:
        ended = f"Production has no page of metrics at {url}/metrics."
    histograms = [(at, _histograms(page, {**HISTOGRAMS, **TRAFFIC_HISTOGRAMS})) for at, page in pages]
    return ObserveAnswer(
        readings=_series(rows),
        histograms=_series(histograms) if request.traffic else Series(),
        ended=ended,
        load_sent=load.sent,
        load_failed=load.failed,
        load_failure=load.failure,
    )


def _series(rows: list[tuple[float, dict[str, float]]]) -> Series:
    names = sorted({name for _, row in rows for name in row})
    return Series(
        t_s=tuple(at for at, _ in rows),
        columns={name: tuple(row.get(name) for _, row in rows) for name in names},
    )


def columns(page: MetricsPage) -> dict[str, float]:
    """The counts of a page by column; what it does not have is left out."""
    counts = {**_histograms(page, HISTOGRAMS), **_counts(page, COUNTERS), **_finished(page)}
    for labels, value in page.get("http_requests_total", ()):
        if labels.get("status", "").startswith("5"):
            counts["http_5xx"] = counts.get("http_5xx", 0.0) + value
    return counts


def _traffic(page: MetricsPage, at_unix_s: float) -> dict[str, float]:
    """The counts of what is asked, and for how long the engine has run where it says so."""
    counts = {**_counts(page, TRAFFIC), **_finished(page)}
    started = serving.metric_total(page, STARTED) if STARTED in page else None
    return {**counts, "up_s": at_unix_s - started} if started else counts


def _finished(page: MetricsPage) -> dict[str, float]:
    """How many requests ended for each reason."""
    counts: dict[str, float] = {}
    for labels, value in page.get("vllm:request_success_total", ()):
        key = f"finished:{labels.get('finished_reason')}"
        counts[key] = counts.get(key, 0.0) + value
    return counts


def _counts(page: MetricsPage, table: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Each column's first metric that the page has, over all labels."""
    counts: dict[str, float] = {}
    for column, names in table.items():
        name = next((each for each in names if each in page), None)
        if name is not None:
            counts[column] = serving.metric_total(page, name) or 0.0
    return counts


def _histograms(page: MetricsPage, table: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for column, names in table.items():
        name = next((each for each in names if f"{each}_count" in page), None)
        if name is None:
            continue
        counts[f"{column}_count"] = serving.metric_total(page, f"{name}_count") or 0.0
        counts[f"{column}_sum"] = serving.metric_total(page, f"{name}_sum") or 0.0
        for labels, value in page.get(f"{name}_bucket", ()):
            key = f"{column}_le:{labels.get('le')}"
            counts[key] = counts.get(key, 0.0) + value
    return counts
