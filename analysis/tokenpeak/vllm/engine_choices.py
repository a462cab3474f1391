"""Settings that an engine runs with, by its start-up log: those it was given, and those it chose by itself.

vLLM's words by release: since 0.8 the whole configuration is on one line and chunked prefill on another. The attention
backend's line has three forms. Asynchronous scheduling has a line of its own from 0.14 on, and in 0.32 only one that
says what prevents it.
"""

import re

_CONFIG = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v[^\n]{0,16384}")  # v1/engine/core.py, 0.32.0 134
"""With all of the line that is looked through, for graphs come behind long lists of operations."""
_IN_CONFIG = {
    # 0.32.0 config/vllm.py 2733; chunked_prefill_enabled up to 0.10
    "enable_chunked_prefill": re.compile(r"\b(?:enable_chunked_prefill|chunked_prefill_enabled)=(True|False)"),
    "enable_prefix_caching": re.compile(r"\benable_prefix_caching=(True|False)"),
    "kv_cache_dtype": re.compile(r"\bkv_cache_dtype=([a-z\d_]{1,30})\b"),
    "cudagraph_mode": re.compile(
        r"'cudagraph_mode': <CUDAGraphMode\.([A-Z_]{1,30})|\"cudagraph_mode\":([\[\]\d,]{1,5}),"
    ),
}
_GRAPHS = {"0": "NONE", "1": "PIECEWISE", "2": "FULL", "[2,0]": "FULL_DECODE_ONLY", "[2,1]": "FULL_AND_PIECEWISE"}
"""Graph modes as 0.11 numbers them: config/compilation.py."""
_GRAPHS_INSTEAD = re.compile(r"CUDAGraphMode\.\w{1,30} is not [^\n]{1,400}; setting cudagraph_mode=([A-Z_]{4,30})")
_BACKEND = re.compile(
    # V0, and V1 up to 0.12 "on V1 engine"; 0.32.0 platforms/cuda.py 446 and 507, rocm.py 750 and 850
    r"(?:cuda|rocm|cpu|xpu|tpu|selector)\.py:\d{1,5}\] Using (?:AttentionBackendEnum\.)?([\w ]{1,40}?)"
    r" (?:attention )?backend(?:\.| on V1 engine| \(selected via| out of potential backends)"
)
_BATCH = re.compile(
    r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,9})"
)  # 0.32.0 config/scheduler.py 308
_AHEAD = re.compile(
    r"Asynchronous scheduling is (enabled|disabled)\."  # 0.19 config/vllm.py
    r"|(Async) scheduling (?:not supported|is not compatible|will be disabled|is disabled)"  # 0.32.0 1606-1640
)
_ENDED = re.compile(r"Disabling (prefix caching|chunked prefill): ")  # 0.32.0 v1/engine/core.py 283
_WORDS = {"True": "on", "False": "off", "enabled": "on", "disabled": "off", "Async": "off", **_GRAPHS}


def engine_choices(log: str) -> dict[str, str]:
    """What the engine runs with, on, off or a word, by the names of its flags; what its release does not log is absent.

    Of the attention's backends the first counts, which is the model's and not a draft's; a later line corrects others.
    """
    line = _CONFIG.search(log)
    backend = _BACKEND.search(log)
    found = {"attention_backend": backend[1].strip()} if backend else {}
    for name, pattern in _IN_CONFIG.items():
        if match := pattern.search(line[0] if line else ""):
            found[name] = _word(match)
    for name, pattern in (
        ("max_num_batched_tokens", _BATCH),
        ("async_scheduling", _AHEAD),
        ("cudagraph_mode", _GRAPHS_INSTEAD),
    ):
        for match in pattern.finditer(log):
            found[name] = match[1] if pattern is _BATCH else _word(match)
    found |= {f"enable_{match[1].replace(' ', '_')}": "off" for match in _ENDED.finditer(log)}
    return found


def _word(match: re.Match[str]) -> str:
    word = str(next(filter(None, match.groups())))
    return _WORDS.get(word, word)
