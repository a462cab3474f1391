"""Quantization: how wide weights are, by method, and what a checkpoint's quantization config says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import FactsError, suggestion


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One method of storing weights. `bits` counts scales and zero points; `compute` is the dtype of the products."""

    method: str
    bits: float
    compute: str
    """fp16, fp8, int8 or fp4; a device without units for it multiplies at its 16-bit rate."""
    kv_cache_dtype: str | None = None
    """The KV cache's dtype when the checkpoint brings one."""


def _grouped(bits: int, group: int, zeros: bool = True) -> float:
    """Bits of a weight with one 16-bit scale, and one zero point, for each `group` weights."""
    return bits + (16 + (bits if zeros else 0)) / group if group > 0 else float(bits)


METHODS: dict[str, Quantization] = {
    method.method: method
    for method in (
        Quantization(method="fp8", bits=8.0, compute="fp8"),
        Quantization(method="modelopt", bits=8.0, compute="fp8"),
        Quantization(method="fbgemm_fp8", bits=8.0, compute="fp8"),
        Quantization(method="awq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="awq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="marlin", bits=_grouped(4, 128), compute="fp16"),
        # NF4 in blocks of 64 with a 32-bit maximum each.
        Quantization(method="bitsandbytes", bits=4.5, compute="fp16"),
        Quantization(method="gguf", bits=4.85, compute="fp16"),
        Quantization(method="experts_int8", bits=8.0, compute="fp16"),
        Quantization(method="compressed-tensors", bits=8.0, compute="fp8"),
        # Blocks of 32 with an 8-bit scale, and of 16 with an 8-bit scale.
        Quantization(method="mxfp4", bits=4.25, compute="fp16"),
        Quantization(method="modelopt_fp4", bits=4.5, compute="fp4"),
    )
}


def quantization_named(method: str) -> Quantization:
    """The method as `--quantization` names it; raises FactsError for a word that is not in the table."""
    if method not in METHODS:
        raise FactsError(
            f"Quantization method {method!r} is unknown. {suggestion(method, METHODS)} "
            "Add it to METHODS in predict/quantization.py to plan with it."
        )
    return METHODS[method]


def quantization_of(config: Mapping[str, Any]) -> Quantization | None:
    """What config.json's quantization_config says; None when there is none or its method is not known here."""
    raw = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(raw, Mapping):
        return None
    method = str(raw.get("quant_method", "")).casefold().replace("_", "-" if raw.get("config_groups") else "_")
    if raw.get("config_groups"):
        return _compressed(raw)
    known = METHODS.get(method)
    if known is None:
        return None
    bits, group = raw.get("bits", raw.get("w_bit")), raw.get("group_size", raw.get("q_group_size"))
    width = known.bits
    if isinstance(bits, int) and bits > 0:
        width = _grouped(bits, group if isinstance(group, int) else 0)
    elif raw.get("quant_algo") == "NVFP4":
        width = METHODS["modelopt_fp4"].bits
    elif raw.get("load_in_8bit"):
        width = 8.0
    kv = str(raw.get("kv_cache_quant_algo") or "").casefold()
    return Quantization(
        method=known.method,
        bits=width,
        compute=METHODS["modelopt_fp4"].compute if raw.get("quant_algo") == "NVFP4" else known.compute,
        kv_cache_dtype="fp8" if kv.startswith("fp8") else None,
    )


def _compressed(raw: Mapping[str, Any]) -> Quantization:
    """The first group of a compressed-tensors config: the width of its weights and what they are multiplied as."""
    group = next((g for g in raw["config_groups"].values() if isinstance(g, Mapping)), {})
    weights = group.get("weights") or {}
    bits, size = int(weights.get("num_bits", 8)), int(weights.get("group_size") or 0)
    activations = group.get("input_activations")
    compute = "fp16" if not activations else ("fp8" if weights.get("type") == "float" else "int8")
    width = _grouped(bits, size, zeros=not weights.get("symmetric", True))
    if (bits, weights.get("type")) == (4, "float"):
        # NVFP4: scales of 8 bits. With activations as narrow, products are as well.
        width = METHODS["modelopt_fp4"].bits
        compute = "fp4" if activations and activations.get("num_bits") == 4 else "fp16"
    kv = raw.get("kv_cache_scheme")
    return Quantization(
        method="compressed-tensors",
        bits=width,
        compute=compute,
        kv_cache_dtype="fp8" if isinstance(kv, Mapping) and kv.get("num_bits") == 8 else None,
    )
