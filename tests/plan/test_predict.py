from dataclasses import replace

import pytest

from node_models import known_board, known_model
from tokenpeak.predict.demand import Demand
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.model import model_facts
from tokenpeak.predict.prediction import hardware_limit_tok_per_s, predict, slo_rate_per_s, steady_state
from tokenpeak.spec.load import MaxRateLoad
from tokenpeak.spec.slo import Slo

MODEL, GPU = known_model("meta-llama/Llama-3.1-8B-Instruct"), known_board("NVIDIA A100-SXM4-80GB")
PLAN = MemoryPlan(
    deployment=Deployment(model=MODEL, gpu=GPU, max_num_seqs=256, max_num_batched_tokens=8192),
    gpu_memory_utilization=0.9,
    kv_cache_memory_bytes=None,
    max_model_len=8192,
)
CLOSED = Demand(
    input_tokens=1000,
    output_tokens=300,
    longest_tokens=1300,
    longest_input_tokens=1000,
    requests=400,
    warmup_requests=0,
    duration_s=None,
    concurrency=32,
    rate_per_s=None,
)
OPEN = replace(CLOSED, concurrency=None, rate_per_s=2.0)


def ranks(memory: MemoryPlan, count: int) -> MemoryPlan:
    return replace(memory, deployment=replace(memory.deployment, data_parallel=count))


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"])
def test_the_limit_is_a_roofline_by_hand(name: str) -> None:
    """For a dense model and a mixture of experts on H100s, the limit is the longer of reading and multiplying."""
    model = model_facts(name)
    gpu = gpu_facts("H100")
    assert model is not None
    assert gpu is not None
    one_expert = 3 * 4096 * 14336 * 32
    attention = 32 * 2 * 4096 * (4096 + 1024)
    experts, picked = (8, 2) if model.experts else (1, 1)
    router = 32 * 4096 * 8 if model.experts else 0
    output_matrix = 4096 * model.vocabulary
    read = 2 * (attention + router + one_expert * experts * (1 - (1 - picked / experts) ** 32) + output_matrix)
    met = attention + router + one_expert * picked
    memory = replace(PLAN, deployment=replace(PLAN.deployment, model=model, gpu=gpu, tensor_parallel=2))
    limits = []
    by_hand = []
    for prompt, output in ((100, 1000), (3000, 30)):
        run = replace(CLOSED, input_tokens=prompt, output_tokens=output)
        reading_s = output * (read + 32 * (prompt + output / 2) * 131072) / (2 * gpu.memory_bytes_per_s)
        multiplying_s = 32 * 2 * (met * (prompt + output) + output_matrix * output) / (2 * gpu.flops_for("bf16"))
        by_hand.append(32 * output / max(reading_s, multiplying_s))
        limits.append(hardware_limit_tok_per_s(memory, run))

    assert pytest.approx(by_hand, rel=1e-6) == limits


def test_finds_the_rate_at_which_the_slo_just_holds() -> None:
    """A stricter limit gives a lower rate; one that no rate can hold gives zero; no limit gives none."""
    loose = slo_rate_per_s(PLAN, OPEN, Slo(tpot_p99_ms=60))
    strict = slo_rate_per_s(PLAN, OPEN, Slo(tpot_p99_ms=25))
    assert loose is not None
    assert strict is not None

    assert 0 < strict < loose
    assert 0.0 == slo_rate_per_s(PLAN, OPEN, Slo(tpot_p99_ms=1))
    assert slo_rate_per_s(PLAN, OPEN, Slo()) is None


def test_a_search_is_predicted_at_the_rate_that_it_should_find() -> None:
    """Its throughput is that rate's, not a single request's; the hardware's limit is not bound by the rate."""
    level = MaxRateLoad(max_rate_under=Slo(tpot_p99_ms=60))
    searched = replace(OPEN, requests=None, rate_per_s=None, search=level)
    rate = slo_rate_per_s(PLAN, OPEN, level.max_rate_under)
    prediction = predict(PLAN, searched)
    assert rate is not None

    assert pytest.approx(rate * OPEN.output_tokens, rel=0.01) == prediction.output_tok_per_s
    assert hardware_limit_tok_per_s(PLAN, replace(OPEN, rate_per_s=None)) == prediction.limit_output_tok_per_s


def test_ranks_of_a_mixture_are_not_independent() -> None:
    """They read their experts together, which is why more ranks pay, and a prefill of any rank stalls all of them."""
    mixture = known_model("Qwen/Qwen3-30B-A3B")
    alone = replace(PLAN, deployment=replace(PLAN.deployment, model=mixture, max_num_batched_tokens=2048))
    one, four = steady_state(alone, CLOSED), steady_state(ranks(alone, 4), replace(CLOSED, concurrency=128))
    stalls = [(state.tpot_s - state.step.total_s) / state.prefill_s for state in (one, four)]
    # 32 prompts in 300 steps a rank; of four ranks, at least one prefills in 1 - (1 - 32 ÷ 300)⁴ of the steps.
    anywhere = 1 - (1 - 32 / 300) ** 4

    assert four.output_tok_per_s > 4 * one.output_tok_per_s
    assert pytest.approx([32 / 300, anywhere], rel=0.15) == stalls
