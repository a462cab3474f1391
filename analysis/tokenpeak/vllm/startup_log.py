"""Start-up log of an engine: the facts of its start, and why it failed.

vLLM's words by release: up to 0.8 the V0 engine logs KV blocks, V1 up to 0.31 logs tokens and concurrency on lines of
their own, 0.32 logs both on one line with the device's name first.
"""

import base64
import binascii
import re
import zlib

from tokenpeak.records import Failure, StartupFacts
from tokenpeak.vllm.engine_choices import engine_choices
from tokenpeak.vllm.explanation import explain_failure
from tokenpeak.vllm.log_lines import plain_lines

GIB = 2**30
KV_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_COUNT = r"(\d[\d,]{0,14})"
_AMOUNT = r"(\d{1,6}(?:\.\d{1,9})?)"
"""Numbers that are read of a log: no other text is one, and these fit a record's 64 bits."""
_VERSION = re.compile(
    r"LLM engine \(v(?P<engine>[^)\s]{1,60})\)"  # 0.7.3 engine/llm_engine.py, V1 v1/engine/core.py
    r"|API server version (?P<server>\d\S{1,60})"  # entrypoints/openai/api_server.py up to 0.31
    r"|█\s{1,20}version (?P<banner>\d\S{1,60})"  # 0.32.0 entrypoints/utils.py
)
_KV_TOKENS = re.compile(rf"\bKV cache size: {_COUNT} tokens")  # v1/core/kv_cache_utils.py since 0.8
_KV_BLOCKS = re.compile(r"# (?!CPU)\w{1,20} blocks: (\d{1,12})")  # 0.7.3 executor/executor_base.py
_CONCURRENCY = re.compile(rf"Maximum concurrency for {_COUNT} tokens per request: {_AMOUNT}x")
_KV_BYTES = re.compile(
    rf"Available KV cache memory: {_AMOUNT} GiB"  # v1/worker/gpu_worker.py since 0.9
    rf"|memory reserved for KV Cache is {_AMOUNT}GiB"  # 0.8.5 worker/worker.py
    rf"|(?:Explicitly|Auto) set \({_AMOUNT}/[\d.]{{1,20}}\) GiB for KV cache"  # 0.32.0 v1/worker/cpu_worker.py
)
_WEIGHTS_TIME = re.compile(rf"Loading weights took {_AMOUNT} seconds")  # model_loader/default_loader.py since 0.8
_WEIGHTS = re.compile(
    # 0.7.3 worker/model_runner.py says GB and means GiB; the time stands there since 0.8
    rf"(?:Loading model weights|Model loading) took {_AMOUNT} (?:GB|GiB)(?: memory)?(?: and {_AMOUNT} seconds)?"
)
_COMPILED = re.compile(rf"torch\.compile (?:takes|took) {_AMOUNT} s in total")  # compilation/monitor.py
_GRAPHS = re.compile(
    rf"Graph capturing finished in [\d.]{{1,20}} secs, took {_AMOUNT} GiB"  # v1/worker/gpu_model_runner.py
)
LOG_LIMIT_BYTES = 16 << 20
"""Of an engine's log, unpacked; a node sends 8 MiB at most."""


def startup_facts(log: str) -> StartupFacts:
    """Facts of a start by its log; None for whatever it does not say.

    Of several workers or engine cores, the smallest KV cache and the longest times count: the slowest holds the rest.
    `weights_bytes` and `kv_cache_bytes` are those of one device. The log does not have `ready_s`.
    """
    choices = engine_choices(log)
    log = "\n".join(plain_lines(log))
    concurrency = [(int(_plain(tokens)), float(times)) for tokens, times in _CONCURRENCY.findall(log)]
    weights = _WEIGHTS.findall(log)
    load_s = [float(text) for text in _WEIGHTS_TIME.findall(log)] or [float(time) for _, time in weights if time]
    kv_bytes = [int(float(next(filter(None, groups))) * GIB) for groups in _KV_BYTES.findall(log)]
    version = _VERSION.search(log)
    return StartupFacts(
        engine_version=next(filter(None, version.groups())) if version else None,
        kv_cache_tokens=_kv_cache_tokens(log, concurrency),
        kv_cache_bytes=min(kv_bytes, default=None),
        max_concurrency=min((times for _, times in concurrency), default=None),
        weights_load_s=max(load_s, default=None),
        weights_bytes=max((int(float(gib) * GIB) for gib, _ in weights), default=None),
        compile_s=max((float(text) for text in _COMPILED.findall(log)), default=None),
        cuda_graph_bytes=max((int(float(text) * GIB) for text in _GRAPHS.findall(log)), default=None),
        engine_choices=choices,
    )


def _plain(number: str) -> str:
    return number.replace(",", "")


def _kv_cache_tokens(log: str, concurrency: list[tuple[int, float]]) -> int | None:
    if tokens := [int(_plain(text)) for text in _KV_TOKENS.findall(log)]:
        return min(tokens)
    blocks = [int(text) for text in _KV_BLOCKS.findall(log)]
    if not blocks or not concurrency:
        return None
    # V0 says how many blocks, not how large: the concurrency over one context, rounded to two digits, shows which.
    context, times = min(concurrency, key=lambda pair: pair[1])
    size = context * times / min(blocks) if min(blocks) else 0
    return min(blocks) * min(KV_BLOCK_SIZES, key=lambda known: abs(known - size))


def classify_failure(log: str, *, phase: str, exit_status: int | None, timed_out: bool) -> Failure:
    """Why the engine failed, from its log read upwards, then from how it ended.

    `exit_status` is negative or 128 + n for a signal, None while the engine runs; `timed_out` says that a deadline
    ended it. A cause that the log names counts before the deadline: an engine that ran out of memory often hangs too.
    """
    found = explain_failure(log, phase=phase, exit_status=exit_status, timed_out=timed_out)
    message = " ".join(filter(None, (found.says, found.advice)))
    return Failure(phase=phase, cause=found.cause, message=message, evidence=found.evidence)


def unpacked_log(packed: str) -> str:
    """The text of an engine's log as a node packs it, cut at a bound; raises ValueError for what is no such pack."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(packed), LOG_LIMIT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    cut = f"\n[cut at {LOG_LIMIT_BYTES} bytes]\n" if unpacking.unconsumed_tail else ""
    return raw.decode(errors="replace") + cut
