"""A workload with a share of prefix hits against a real vLLM: what its own counters say was hit."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cpu_vllm import NEEDED, prefix_hits, served

BLOCK, LONGEST = 512, 1900
"""Tokens of a block of Mooncake's traces, and of the longest prompt."""
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))

pytestmark = [pytest.mark.e2e, NEEDED]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real engine that serves."""
    with served(tmp_path_factory.mktemp("engine") / "log") as url:
        yield url


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_hits_are_those_that_were_asked_for(url: str, share: float, tmp_path: Path) -> None:
    """Within two points, by the engine's count and by the run's record."""
    workload = tmp_path / "shared.json"
    lengths = {"input_tokens": 1024, "output_tokens": 2, "prefix_hit_rate": share}
    workload.write_text(json.dumps({"kind": "synthetic", "name": "shared", **lengths}))
    before = prefix_hits(url)

    load = [TOKENPEAK, "load", url, "--workload", str(workload), "--format", "json"]
    amount = ["--concurrency", "2", "--requests", "60", "--warmup-requests", "2"]
    done = subprocess.run([*load, *amount], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    hits, queries = prefix_hits(url)
    hit = (hits - before[0]) / (queries - before[1])

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
    before = prefix_hits(url)

    amount = ["--concurrency", "1", "--requests", "150", "--format", "json"]
    done = subprocess.run(
        [TOKENPEAK, "load", url, "--trace", str(trace), *amount], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    hits, queries = prefix_hits(url)
    hit = (hits - before[0]) / (queries - before[1])

    print(f"hashes imply {implied:.4f}, the engine hit {hit:.4f}")
    assert implied == pytest.approx(hit, abs=0.02)
