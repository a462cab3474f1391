"""Prompts of a model's own vocabulary against a real vLLM: exact lengths, and what n-gram speculation makes of them."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.cpu_vllm import ENGINE, NEEDED, served

from tokenpeak.loadgen import run, vocabulary
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.vocabulary import WORDS, Vocabulary, learn
from tokenpeak.records import RunRecord

PROMPT_TOKENS, ANSWER_TOKENS = 400, 64
SPECULATION = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
MODEL = """
import sys, pathlib, torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder = pathlib.Path(sys.argv[1])
texts = [path.read_text(errors="ignore") for path in sorted(pathlib.Path(torch.__file__).parent.rglob("*.py"))[:3000]]
bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator(texts, vocab_size=32000, special_tokens=["<s>", "</s>"], show_progress=False)
bpe.save(str(folder / "bpe.json"))
fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "bpe.json"), bos_token="<s>", eos_token="</s>")
fast.save_pretrained(folder)
torch.manual_seed(0)
LlamaForCausalLM(
    LlamaConfig(
        vocab_size=bpe.get_vocab_size(), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
    )
).to(torch.bfloat16).save_pretrained(folder)
"""
"""A model of random weights with a vocabulary of 32,000 pieces of real text."""

pytestmark = [pytest.mark.e2e, NEEDED]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real engine that speculates by n-grams of what came before."""
    model = tmp_path_factory.mktemp("model")
    subprocess.run([str(ENGINE / "python"), "-c", MODEL, str(model)], check=True, stdout=sys.stderr)
    with served(model / "log", "--speculative-config", json.dumps(SPECULATION), model=model, name="m") as url:
        yield url


def tokens_of(url: str, text: str) -> int:
    """How many tokens a text has, by the engine's own tokenizer."""
    body = json.dumps({"model": "m", "prompt": text, "add_special_tokens": False}).encode()
    request = urllib.request.Request(f"{url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(json.load(response)["count"])


async def learned(url: str) -> Vocabulary:
    """The vocabulary that the client learns there."""
    async with httpx.AsyncClient(base_url=url) as client:
        return await learn(client, "m")


def offered(url: str, folder: Path) -> RunRecord:
    """A closed loop of prompts that are made."""
    lengths = {"input_tokens": PROMPT_TOKENS, "output_tokens": ANSWER_TOKENS}
    asked = {
        "run_index": 0,
        "workload": {"kind": "synthetic", "name": "w", **lengths},
        "level": {"concurrency": 4, "requests": 60},
        "slo": {},
        "seed": 0,
    }
    job = {"base_url": url, "metrics_url": f"{url}/metrics", "model": "m", "output_dir": folder, "runs": [asked]}
    return run.run_job(LoadJob.model_validate(job))[0]


def test_words_are_the_models_own(url: str) -> None:
    """Thousands of words, each one token wherever it stands, by the engine's own count."""
    known = asyncio.run(learned(url))
    text = known.text(range(1000))

    assert len(set(known.words)) > 10 * len(WORDS)
    assert tokens_of(url, f" {text}") == 1000
    assert set(known.words) - set(WORDS)


def test_speculation_of_few_words_and_of_the_vocabulary(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prompt has its exact length; what n-grams guess right of answers is printed for either kind."""
    figures = {}
    for name in ("vocabulary", "182 words"):
        if name == "182 words":
            monkeypatch.setattr(vocabulary, "_own", nothing)
        record = offered(url, tmp_path / name)
        engine = record.engine
        assert record.summary.input_tokens == 60 * PROMPT_TOKENS
        assert engine is not None
        figures[name] = (engine.draft_acceptance_rate, engine.draft_accepted_length, record.summary.output_tok_per_s)
    print(figures)
    assert all(rate is not None for rate, _, _ in figures.values())


async def nothing(_: object) -> None:
    """No vocabulary of the model's own."""
