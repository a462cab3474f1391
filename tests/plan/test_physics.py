from dataclasses import replace

import pytest

from node_models import deployment
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.physics import HOP_S, MEMORY_EFFICIENCY, step_time_s

V100 = deployment(
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "Tesla V100-PCIE-32GB",
    tensor_parallel=4,
    dtype="float16",
    eager=True,
    v1=False,
    engine_version="0.8.5.post1",
    max_num_seqs=32,
    max_num_batched_tokens=32768,
)
LLAMA_8B = deployment("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA A100-SXM4-80GB")


def test_gives_the_published_v100_figures_untuned() -> None:
    """Steps of the published V100 run add up to its speed, TTFT and latency within 30%, untuned to it."""
    prefill = step_time_s(V100, prefill_tokens=32 * 28, prefill_sequences=32)
    decode = step_time_s(V100, decode_sequences=32, decode_context_tokens=32 * 178)
    latency_s = prefill.total_s + 299 * decode.total_s

    assert pytest.approx(0.393, rel=0.3) == prefill.total_s
    assert pytest.approx(13.78, rel=0.3) == latency_s
    assert pytest.approx(21.8, rel=0.3) == 300 / latency_s


def test_reads_only_the_experts_that_were_picked() -> None:
    """One token reads two experts of eight, two tokens 3.5 of them in the mean, many nearly all."""
    mixture = deployment("mistralai/Mixtral-8x7B-Instruct-v0.1", "NVIDIA H200")
    one = step_time_s(mixture, decode_sequences=1, decode_context_tokens=100)
    two = step_time_s(mixture, decode_sequences=2, decode_context_tokens=200)
    many = step_time_s(mixture, decode_sequences=64, decode_context_tokens=6400)
    expert_s = 2 * 32 * 3 * 4096 * 14336 / (mixture.gpu.memory_bytes_per_s * MEMORY_EFFICIENCY)

    assert one.weights_s < 0.35 * many.weights_s
    assert pytest.approx(1.5 * expert_s) == two.weights_s - one.weights_s
    assert pytest.approx(6 * expert_s, rel=1e-6) == many.weights_s - one.weights_s


def test_exchanges_in_as_many_hops_as_the_link_needs() -> None:
    """A ring takes 2 × (n - 1) hops for each all-reduce; over NVLink the engine's own takes two for any n."""
    pcie = deployment("DeepSeek-R1-Distill-Llama-8B", "Tesla V100-PCIE-32GB", dtype="float16")

    def exchange_s(one: Deployment, gpus: int) -> float:
        return step_time_s(
            replace(one, tensor_parallel=gpus), decode_sequences=1, decode_context_tokens=1
        ).interconnect_s

    exchanges = 2 * pcie.model.layers + 1
    assert pytest.approx(exchanges * 12 * HOP_S["pcie"], rel=0.1) == exchange_s(pcie, 8) - exchange_s(pcie, 2)
    assert exchange_s(LLAMA_8B, 8) - exchange_s(LLAMA_8B, 2) < exchanges * HOP_S["nvlink"]


def test_eight_bit_weights_do_not_halve_a_prefill() -> None:
    """Norms and activations take as long as before: an H100 needed 0.60 of the time for 8,192 tokens, not 0.5."""
    h100 = deployment("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA H100 80GB HBM3", schedules_ahead=True)
    whole, narrow = (
        step_time_s(replace(h100, quantization=method), prefill_tokens=8192, prefill_sequences=8)
        for method in (None, "fp8")
    )
    inner, hidden = 3 * 14336, 10 * 4096
    by_hand_s = 8192 * 32 * (inner + hidden) * 2 / (3.35e12 * MEMORY_EFFICIENCY)

    assert pytest.approx(by_hand_s, rel=0.01) == whole.activations_s == narrow.activations_s
    assert pytest.approx(0.60, abs=0.05) == narrow.total_s / whole.total_s
