"""An engine logs a number that is none, `KV cache size: , tokens`, or one of thousands of digits.

The node's worker crashed on it, no trial was recorded, the node was left out, and a resumed sweep did it again. A
number is what one pattern takes for one, and what cannot be read is not known; the trial is recorded.
"""

import json

import pytest

from tokenpeak.records import StartupFacts
from tokenpeak.vllm.startup_log import LINE_CHARACTERS, classify_failure, startup_facts

LINES = {
    "kv_cache_tokens": "GPU KV cache size: {} tokens",
    "max_concurrency": "Maximum concurrency for 4,096 tokens per request: {}x",
    "kv_cache_bytes": "Available KV cache memory: {} GiB",
    "weights_load_s": "Loading weights took {} seconds",
    "weights_bytes": "Model loading took {} GiB and 3 seconds",
    "compile_s": "torch.compile takes {} s in total",
    "cuda_graph_bytes": "Graph capturing finished in 3 secs, took {} GiB",
}
NO_NUMBERS = [",", ".", "1.2.3", "..", "9" * 400, "9" * 5000, ",1", "1e999", "-1", "²"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda number: number[:5])
@pytest.mark.parametrize("fact", LINES)
def test_number_that_is_none(fact: str, number: str) -> None:
    """The fact is not known, what else the log says is, and the record can be written."""
    log = f"LLM engine (v0.32.0)\n{LINES[fact].format(number)}\n"

    assert StartupFacts(engine_version="0.32.0") == startup_facts(log)


@pytest.mark.parametrize("number", ["9" * 15, "999,999,999,999", "999999.999999999"])
def test_largest_numbers(number: str) -> None:
    """What is read fits 64 bits, in which archives are read again."""
    lines = [line.format(number) for line in LINES.values()]
    blocks = f"# GPU blocks: {'9' * 12}\nMaximum concurrency for 4096 tokens per request: 999999x"
    for log in ("\n".join(lines), blocks):
        for value in json.loads(startup_facts(log).model_dump_json()).values():
            assert not isinstance(value, int | float) or value < 2**63


@pytest.mark.parametrize("code", ["9" * 5000, "-" + "9" * 5000, "-999999999", "-9"], ids=lambda code: code[:4])
@pytest.mark.parametrize(
    "line", ["Worker proc w died unexpectedly (exit code: {})", "Failed core proc(s): {{'EngineCore': {}}}"]
)
def test_exit_code(line: str, code: str) -> None:
    """A failure is classified whatever the code is."""
    failure = classify_failure(line.format(code), phase="launch", exit_status=1, timed_out=False)

    assert ("by SIGKILL" in failure.message) == (code == "-9")


def test_line_without_end() -> None:
    """What is looked through of a line is bounded, and the next line is read."""
    log = f"{'x' * LINE_CHARACTERS} Loading weights took 1 seconds\nLoading weights took 2 seconds"

    assert 2.0 == startup_facts(log).weights_load_s
