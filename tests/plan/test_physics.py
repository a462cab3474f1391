from dataclasses import replace

import pytest

from tokenpeak.predict.deployment import Deployment, kv_cache_tokens
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.model import model_facts
from tokenpeak.predict.physics import HOP_S, MEMORY_EFFICIENCY, V0_STAGE_S, step_time_s


def deployment(model: str, gpu: str, **options: object) -> Deployment:
    facts, device = model_facts(model), gpu_facts(gpu)
    assert facts is not None
    assert device is not None
    return Deployment(model=facts, gpu=device, **options)  # type: ignore[arg-type]


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


def test_waits_for_the_host_when_eager_on_a_small_model() -> None:
    """An eager 1.5B model on an H100 is bound by launches, which graphs take away."""
    eager = deployment("DeepSeek-R1-Distill-Qwen-1.5B", "H100 PCIe", eager=True)
    step = step_time_s(eager, decode_sequences=8, decode_context_tokens=2000)
    graphs = step_time_s(replace(eager, eager=False), decode_sequences=8, decode_context_tokens=2000)

    assert "launch_overhead" == step.binding
    assert graphs.total_s < step.total_s / 2


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


def test_spreads_experts_over_data_parallel_ranks() -> None:
    """Eight ranks of DeepSeek-V3 hold and read an eighth of the routed experts each, and all else whole.

    By the published shape: 58 layers of 256 experts of 3 × 7168 × 2048 in fp8.
    """
    one = deployment("deepseek-ai/DeepSeek-V3", "NVIDIA H200", engine_version="0.32.0")
    eight = replace(one, data_parallel=8)
    experts = 58 * 256 * 3 * 7168 * 2048
    saved = one.weight_bytes_per_gpu - eight.weight_bytes_per_gpu
    steps = [step_time_s(each, decode_sequences=64, decode_context_tokens=64 * 500) for each in (one, eight)]
    read = [1 - (1 - 8 / 256) ** tokens for tokens in (64, 8 * 64)]
    seconds = experts / (one.gpu.memory_bytes_per_s * MEMORY_EFFICIENCY)

    assert pytest.approx(experts * 7 / 8) == saved
    assert pytest.approx(seconds * (read[0] - read[1] / 8)) == steps[0].weights_s - steps[1].weights_s
    assert 0.0 == steps[0].interconnect_s < steps[1].interconnect_s
    assert steps[0].compute_s == steps[1].compute_s


def test_counts_kv_cache_in_whole_blocks_and_never_below_zero() -> None:
    """Weights that do not fit leave no tokens; what is left is cut to blocks."""
    too_large = deployment("DeepSeek-R1-Distill-Llama-70B", "NVIDIA L4")

    assert 0 == kv_cache_tokens(too_large)
    assert 0 == kv_cache_tokens(LLAMA_8B) % 16


def test_keeps_the_kv_cache_at_the_width_of_the_activations() -> None:
    """float32 halves the tokens that given bytes hold; an fp8 KV cache doubles them."""
    given = 2**30
    tokens = [
        kv_cache_tokens(replace(LLAMA_8B, **change), kv_cache_memory_bytes=given)  # type: ignore[arg-type]
        for change in ({"dtype": "float32"}, {}, {"kv_cache_dtype": "fp8_e5m2"})
    ]

    assert [4096, 8192, 16384] == tokens


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


def test_hands_over_between_stages() -> None:
    """A pipeline hands over once between two stages, which costs V0's processes 2.5 ms more."""
    stages = [
        step_time_s(replace(V100, tensor_parallel=1, pipeline_parallel=4, v1=v1), decode_sequences=1).interconnect_s
        for v1 in (False, True)
    ]

    assert pytest.approx(3 * V0_STAGE_S) == stages[0] - stages[1]


def test_attends_to_a_window_at_most() -> None:
    """Layers with a window read no more of a long context than that; of a short one, all of it."""
    windowed = replace(LLAMA_8B, model=replace(LLAMA_8B.model, sliding_window=4096, windowed_layers=16))

    def kv_s(one: Deployment, context: int) -> float:
        return step_time_s(one, decode_sequences=2, decode_context_tokens=2 * context).kv_s

    assert kv_s(LLAMA_8B, 4000) == kv_s(windowed, 4000)
    assert pytest.approx((40_000 + 4096) / 2 / 40_000, rel=0.001) == kv_s(windowed, 40_000) / kv_s(LLAMA_8B, 40_000)


def test_a_narrow_kv_cache_is_read_nearly_as_long_as_a_whole_one() -> None:
    """Half the bytes at little more than half the bandwidth: launches on an H100 showed 0.84 of the time and more."""
    whole, narrow = (
        step_time_s(replace(LLAMA_8B, kv_cache_dtype=dtype), decode_sequences=64, decode_context_tokens=64 * 1000).kv_s
        for dtype in ("auto", "fp8")
    )

    assert 0.8 < narrow / whole < 0.95


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


def test_scheduling_ahead_costs_time_only_where_the_device_is_faster_than_the_host() -> None:
    """A step of many sequences hides its host's work; the step of a tiny model is the host's."""
    many = {"decode_sequences": 64, "decode_context_tokens": 64 * 1000}
    waits = step_time_s(LLAMA_8B, **many)
    ahead = step_time_s(replace(LLAMA_8B, schedules_ahead=True), **many)
    tiny = deployment("DeepSeek-R1-Distill-Qwen-1.5B", "NVIDIA H200", tensor_parallel=4, schedules_ahead=True)
    host = step_time_s(tiny, decode_sequences=256, decode_context_tokens=256 * 10)

    assert pytest.approx(waits.total_s - waits.scheduler_s) == ahead.total_s
    assert host.total_s >= host.scheduler_s
