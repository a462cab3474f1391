"""Quantized checkpoints: how wide their weights are, and which of a device's rates their products run at."""

from typing import Any

import pytest

from tokenpeak.predict.config_json import quantization_of

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
    found = quantization_of(config)
    assert found is not None

    assert (4.5, compute) == (found.bits, found.compute)
