"""Observation of production by its own metrics: cumulative counts of requests, TTFT, TPOT and failures, over a while.

Names are those of vLLM's V1 engine, or of V0 where it differs. A histogram's column NAME_le:B counts values up to B.
"""

from __future__ import annotations

import time

from tokenpeak.node import metrics_text
from tokenpeak.node.bake_load import BakeLoad
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.metrics_text import Samples as Page
from tokenpeak.node.production.identity import ForeignServerError, OfProduction
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.answers import Samples
from tokenpeak.node.protocol.apply_answers import ObserveAnswer
from tokenpeak.node.protocol.apply_requests import OBSERVE_MAX_S, ObserveRequest

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
READINGS_MAX = 20_000
"""All of them are held in memory until the answer."""
SILENT_S = 5.0
"""After so long without its page production counts as gone."""


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
    with load:
        time.sleep(request.settle_s)
        began = answered = time.monotonic()
        while True:
            now = time.monotonic()
            page = _page(url, check if not rows else None, declared.get("ca_file"))
            if page is not None:
                answered = now
                rows.append((time.time(), columns(page)))
            elif now - answered > SILENT_S:
                runs = "does not answer at" if manager.is_running() else "does not run any more, nor answer at"
                ended = f"Production {runs} {url}/metrics."
                break
            if now - began >= request.seconds:
                break
            time.sleep(max(0.0, min(request.period_s, began + request.seconds - now)))
    if not rows and ended is None:
        ended = f"Production has no page of metrics at {url}/metrics."
    names = sorted({name for _, row in rows for name in row})
    return ObserveAnswer(
        readings=Samples(
            t_s=tuple(at for at, _ in rows),
            columns={name: tuple(row.get(name) for _, row in rows) for name in names},
        ),
        ended=ended,
        load_sent=load.sent,
        load_failed=load.failed,
        load_failure=load.failure,
    )


def _page(url: str, check: OfProduction | None, ca_file: str | None) -> Page | None:
    try:
        return metrics_text.read_page(url, check, ca_file)
    except ForeignServerError:
        return None


def columns(page: Page) -> dict[str, float]:
    """The counts of a page by column; what it does not have is left out."""
    found: dict[str, float] = {}
    for column, names in HISTOGRAMS.items():
        name = next((each for each in names if f"{each}_count" in page), None)
        if name is None:
            continue
        found[f"{column}_count"] = metrics_text.total(page, f"{name}_count") or 0.0
        found[f"{column}_sum"] = metrics_text.total(page, f"{name}_sum") or 0.0
        for labels, value in page.get(f"{name}_bucket", ()):
            key = f"{column}_le:{labels.get('le')}"
            found[key] = found.get(key, 0.0) + value
    for column, names in COUNTERS.items():
        name = next((each for each in names if each in page), None)
        if name is not None:
            found[column] = metrics_text.total(page, name) or 0.0
    for labels, value in page.get("vllm:request_success_total", ()):
        key = f"finished:{labels.get('finished_reason')}"
        found[key] = found.get(key, 0.0) + value
    for labels, value in page.get("http_requests_total", ()):
        if labels.get("status", "").startswith("5"):
            found["http_5xx"] = found.get("http_5xx", 0.0) + value
    return found
