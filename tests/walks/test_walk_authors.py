"""The authors of five published tunings: each finds the own case here, on simulated boards, by the first commands."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from tests.docs.reader import Reader
from tests.sim.running_engine import StartEngine
from tests.walks.authors import change_sweep, simulate_nodes

from tokenpeak import paths

pytestmark = [pytest.mark.e2e]

LLAMA = [sys.executable, str(paths.ROOT / "tests" / "llama_standin.py"), "--host={host}", "--port={port}"]
LLAMA += ["--model={model}", "--alias={served_model}"]
PRODUCTION_ON_T4 = "--dtype float16 --max-num-seqs 4 --gpu-memory-utilization 0.99 --max-model-len 512 --enforce-eager"
QWEN = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
CHATS = [
    {
        "conversations": [
            {"from": "human", "value": f"Spring bean {number} in Java"},
            {"from": "gpt", "value": "It is" * 9},
        ]
    }
    for number in range(60)
]


@pytest.fixture
def author(somebody: Reader) -> Reader:
    """A reader with a working folder that has the boards of all five."""
    somebody.type("tokenpeak init tuning --like v100 --like a100 --like h200 --like t4 --like h100")
    somebody.type("cd tuning")
    return somebody


def trials(somebody: Reader) -> list[dict[str, Any]]:
    """The trials of all sweeps, in their order."""
    return [json.loads(path.read_text()) for path in sorted(somebody.folder.glob("results/*/trials/*.json"))]


def page(somebody: Reader, name: str) -> str:
    """A page of the one sweep."""
    [archive] = somebody.folder.glob("results/*/sweep.json")
    return (somebody.folder / "site" / "build" / archive.parent.name / f"{name}.html").read_text()


def has_all(text: str, words: Sequence[str]) -> None:
    """Each of the words is in the text."""
    assert [] == [word for word in words if word not in text]


def test_walk_of_the_article_on_v100(author: Reader) -> None:
    """Table, winner's command, energy and the article's own claims, of trials on four V100."""
    simulate_nodes(author, "four", like="v100", gpus=4, version="0.8.5.post1", model={"name": QWEN})
    change_sweep(author, "v100-deepseek-r1-32b", search={"strategy": "grid", "trials": 3})

    planned = author.type("tokenpeak plan --inventory four --sweep v100-deepseek-r1-32b").said
    author.type("tokenpeak sweep --inventory four --sweep v100-deepseek-r1-32b")
    energy = author.type("tokenpeak sql 'SELECT config_name, energy_j_per_output_tok FROM v_energy'").said

    has_all(planned, ["433 configs", "tensor_parallel_size", "bfloat16"])
    assert {"ok"} == {trial["status"] for trial in trials(author)}
    has_all(page(author, "index"), ["vllm serve", "--tensor-parallel-size 4"])
    has_all(page(author, "ranking"), ["Energy per output token"])
    has_all(page(author, "energy"), ["kWh", "CO₂", "Water"])
    has_all(page(author, "claims"), ["C1", "21.8 tok/s"])
    assert energy.count("\n") >= 3


def test_walk_of_the_effort_with_datasets(author: Reader, start_engine: StartEngine) -> None:
    """Two files in ShareGPT's layout, by their words, ten requests a second and ten in flight; percentiles of all."""
    for name, chats in (("first", CHATS[:30]), ("second", CHATS[30:])):
        (author.folder / f"{name}.json").write_text(json.dumps(chats))
    workload = "kind: dataset\nname: code\npaths: [first.json, second.json]\nmatch: (?i)java\nmin_input_tokens: 2\n"
    (author.folder / "code.yml").write_text(workload)
    engine = start_engine("--served-model-name", "llama-70b", "--max-model-len", "8192").wait_ready()

    offered = author.type(
        f"tokenpeak load {engine.url} --workload code.yml --rate 10 --max-concurrency 10 --requests 50 --seed 42"
    ).said

    has_all(offered, ["50 of 50", "Time to first token", "Inter-token latency", "p99", "Verdict: valid"])


def test_walk_of_the_plan_with_an_slo(author: Reader) -> None:
    """The named phases on one H200: the highest rate within the limits of each, and what broke beyond it."""
    model = {"name": "nvidia/Llama-3.1-70B-Instruct-FP8", "served_name": "llama-70b"}
    simulate_nodes(author, "one", like="h200", gpus=1, version="0.14.1", model=model)
    path = author.folder / "sweeps" / "h200-llama70b-fp8.yml"
    path.write_text(path.read_text().replace("output_tokens: 830", "output_tokens: 40"))
    chats = yaml.safe_load(path.read_text())["workloads"][0]["workload"]
    levels = [{"rate_per_s": rate, "requests": 110, "warmup_requests": 5} for rate in (5, 25)]
    change_sweep(
        author,
        "h200-llama70b-fp8",
        workloads=[{"workload": chats, "levels": levels}],
        search={"strategy": "grid", "baseline": [], "trials": 2, "replicates": 1},
    )

    author.type("tokenpeak check")
    author.type("tokenpeak sweep --inventory one --sweep h200-llama70b-fp8")

    measured = trials(author)
    assert {"ok"} == {trial["status"] for trial in measured}
    assert all(run["summary"]["requests_ok"] > 0 for trial in measured for run in trial["runs"])
    has_all(page(author, "load"), ["TTFT p99", "TPOT p99"])
    has_all(page(author, "requests"), ["turn"])


def test_walk_of_the_comparison_of_quantizations(author: Reader) -> None:
    """The published table's weights on one T4, GGUF under another server among them; each with its precision."""
    model = {"name": "mistralai/Mistral-7B-Instruct-v0.2", "served_name": "mistral-7b"}
    simulate_nodes(
        author,
        "small",
        like="t4",
        gpus=1,
        version="0.14.1",
        model=model,
        production=(*PRODUCTION_ON_T4.split(), "--max-num-batched-tokens", "512"),
    )
    variables = author.folder / "inventory" / "small" / "group_vars" / "all.yml"
    written = yaml.safe_load(variables.read_text())
    vllm = {"version": written.pop("tokenpeak_engine_version"), "command": written.pop("tokenpeak_engine_command")}
    vllm["version"] = written["tokenpeak_simulated_machine"]["engine_version"] = "0.14.1"
    written["tokenpeak_engines"] = {"vllm": vllm, "llama": {"server": "llama.cpp", "command": LLAMA}}
    variables.write_text(yaml.safe_dump(written, sort_keys=False))
    path = author.folder / "sweeps" / "t4-mistral7b-quantization.yml"
    path.write_text(path.read_text().replace("output_tokens: 200", "output_tokens: 20"))
    change_sweep(author, "t4-mistral7b-quantization", search={"strategy": "grid", "baseline": [], "finalists": 0})

    planned = author.type("tokenpeak plan --inventory small --sweep t4-mistral7b-quantization").said
    author.type("tokenpeak sweep --inventory small --sweep t4-mistral7b-quantization")

    has_all(planned, ["llama.cpp is not vLLM", "fp8"])
    assert {"weights=awq-4bit", "weights=gptq-4bit", "weights=float16", "weights=gguf-4bit"} <= {
        trial["config"]["name"] for trial in trials(author) if trial["status"] == "ok"
    }
    has_all(page(author, "ranking"), ["awq-4bit", "gguf-4bit", "Q4_K_M", "KV cache", "quality unknown"])


def test_walk_of_the_presets(author: Reader) -> None:
    """Models at two contexts over arrangements of two GPUs: tables of each, and no model as the better config."""
    simulate_nodes(
        author, "pair", like="h100", gpus=2, version="0.32.0", model={"name": "meta-llama/Llama-3.1-8B-Instruct"}
    )
    path = author.folder / "sweeps" / "presets-model-context.yml"
    path.write_text(path.read_text().replace("output_tokens: 512", "output_tokens: 32"))
    axes = yaml.safe_load(path.read_text())["axes"]
    pairs = [each for each in axes["parallelism"] if each["name"] in ("tensor-2", "pipeline-2")]
    axes = {"model": axes["model"][1:3], "max_model_len": [2048, 8192], "parallelism": pairs}
    grid = {"strategy": "grid", "baseline": [], "finalists": 0}
    change_sweep(author, "presets-model-context", axes=axes, search=grid)

    author.type("tokenpeak sweep --inventory pair --sweep presets-model-context")

    assert {"ok"} == {trial["status"] for trial in trials(author)}
    has_all(page(author, "index"), ["models"])
    has_all(page(author, "hardware"), ["TP2", "PP2", "llama-3b", "8,192", "Output throughput at a context of"])
