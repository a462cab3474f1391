from typing import Any

import pytest

from node_models import known_model
from tokenpeak.errors import FactsError
from tokenpeak.predict.model import facts_from_config
from tokenpeak.predict.quantization import scheme_of

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
    ],
)
def test_counts_parameters_by_formula(name: str, expected: int) -> None:
    """The formula gives the exact parameter count of the published checkpoint."""
    facts = known_model(name)

    assert expected == facts.parameters


PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": 0.49,
    "Qwen/Qwen3-8B": 8.2,
    "Qwen/Qwen3-235B-A22B": 235,
    "google/gemma-2-9b-it": 9.24,
    "microsoft/phi-4": 14.7,
    "mistralai/Mixtral-8x22B-Instruct-v0.1": 141,
    "meta-llama/Meta-Llama-3.1-405B-Instruct": 406,
    "openai/gpt-oss-120b": 116.8,
    "zai-org/GLM-4.5": 355,
    "allenai/OLMo-2-1124-7B-Instruct": 7.3,
}
"""Model → its parameters in billions, as its card or report says; gpt-oss: arXiv 2508.10925, GLM-4.5 with MTP."""


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_shapes_of_other_sources_have_the_published_size(name: str, billions: float) -> None:
    """A shape that comes from no config.json has as many parameters as the model's card or report says."""
    facts = known_model(name)

    assert billions == pytest.approx(facts.parameters / 1e9, rel=0.01)


def test_counts_what_one_token_meets_of_a_mixture_of_experts() -> None:
    """DeepSeek-V3 has 671 billion parameters, of which a token meets 37."""
    facts = known_model("deepseek-ai/DeepSeek-V3")

    assert 671 == round(facts.parameters / 1e9)
    assert 37.6 == round(facts.active_parameters / 1e9, 1)


def test_keeps_one_compressed_vector_a_layer_under_mla() -> None:
    """MLA's KV cache is 576 values a token and layer, on each tensor-parallel GPU alike."""
    facts = known_model("DeepSeek-V3")

    assert 61 * 576 * 2 == facts.kv_bytes_per_token()
    assert facts.kv_bytes_per_token() == facts.kv_bytes_per_token(tensor_parallel=8)


def test_takes_the_kv_cache_dtype_that_a_checkpoint_asks_for() -> None:
    """A ModelOpt FP8 checkpoint with FP8 KV cache takes half the bytes a token."""
    plain, fp8 = known_model("meta-llama/Llama-3.1-70B-Instruct"), known_model("nvidia/Llama-3.1-70B-Instruct-FP8")

    assert plain.kv_bytes_per_token() == 2 * fp8.kv_bytes_per_token()


def test_stretches_the_context_by_yarn() -> None:
    """YaRN's factor counts from the original length; llama3's length is already stretched."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    stretched = facts_from_config({**LLAMA, "max_position_embeddings": 32768, "rope_scaling": yarn}, "yarn")
    llama3 = facts_from_config({**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3")

    assert 131072 == stretched.max_context
    assert 131072 == llama3.max_context


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size = '4096'"),
        ({"num_key_value_heads": 5}, "num_key_value_heads = 5"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"quantization_config": {"config_groups": [1]}}, "another form"),
    ],
)
def test_says_which_key_of_a_config_makes_no_sense(change: dict[str, object], word: str) -> None:
    """A nonsense config.json is an error that names the key, its value and what to do."""
    with pytest.raises(FactsError, match=word) as caught:
        facts_from_config({**LLAMA, **change}, "odd")

    assert "that file" in str(caught.value)


NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16, "symmetric": True}


def compressed(activations: dict[str, Any] | None) -> dict[str, Any]:
    """A checkpoint in compressed-tensors' NVFP4, as llm-compressor writes it."""
    group = {"weights": NVFP4, "input_activations": activations, "targets": ["Linear"]}
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}}


@pytest.mark.parametrize(
    ("config", "compute"),
    [
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "fp4"),
        (compressed(NVFP4), "fp4"),
        (compressed(None), "fp16"),
    ],
)
def test_nvfp4_has_narrow_products_only_with_narrow_activations(config: dict[str, Any], compute: str) -> None:
    """Weights of 4 bits in blocks of 16 with an 8-bit scale take 4.5 bits each, however they are multiplied."""
    scheme = scheme_of(config)
    assert scheme is not None

    assert (4.5, compute) == (scheme.method.bits, scheme.method.compute)
