"""Parameters of what stands beside a decoder: the towers that turn images, video or sound into its embeddings."""

from collections.abc import Mapping
from typing import Any

_GATED = frozenset({"qwen2_5_vl", "qwen2_5_omni", "pixtral", "qwen2_5_vl_vision", "qwen2_5_vl_text"})
"""Families whose tower's MLP is three matrices."""

TOWERS = ("vision_config", "audio_config")

_OF_ANY_SIZE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
"""Families whose images become as many embeddings as they are large."""


def tower_parameters(config: Mapping[str, Any], hidden: int) -> int:
    """Parameters of the towers and of what joins them to a decoder of this hidden size; 0 where it has none.

    Counted by their main matrices, which are all but a few hundredths.
    """
    return sum(_of_one(config, own, hidden) for key in TOWERS if isinstance(own := config.get(key), Mapping))


def image_token_values(config: Mapping[str, Any], hidden: int) -> int:
    """Values of one embedding of an image, with those of each level that goes deeper; 0 where not known here."""
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping) or not str(config.get("model_type")).startswith(_OF_ANY_SIZE):
        return 0
    deeper = tower.get("deepstack_visual_indexes")
    levels = 1 + len(deeper if isinstance(deeper, list) else ())
    return levels * (_first(tower, "out_hidden_size") or hidden)


def _of_one(config: Mapping[str, Any], tower: Mapping[str, Any], hidden: int) -> int:
    width = _first(tower, "embed_dim", "hidden_size", "width", "d_model")
    layers = _first(tower, "depth", "num_hidden_layers", "layers", "encoder_layers")
    if not width or not layers:
        return 0
    ratio = tower.get("mlp_ratio", 4)
    inner = _first(tower, "intermediate_size", "encoder_ffn_dim") or int(width * ratio)
    kinds = {str(config.get("model_type")), str(tower.get("model_type"))}
    if any(kind.startswith(("glm4v", "glm46v", "glm_ocr")) for kind in kinds):
        return _of_glm(tower, width, layers, inner)
    layer = 4 * width**2 + (3 if kinds & _GATED else 2) * width * inner
    patch = _first(tower, "patch_size") or 14
    joined = width * (_first(tower, "temporal_patch_size") or (2 if "depth" in tower else 1)) * 3 * patch**2
    out = _first(tower, "out_hidden_size") or hidden
    if "depth" in tower or "spatial_merge_size" in tower:
        # Neighbours are merged: four patches to one embedding, and again for each level that goes deeper.
        merged = width * (_first(tower, "spatial_merge_size") or 2) ** 2
        deeper = tower.get("deepstack_visual_indexes")
        return (
            layers * layer + joined + (merged**2 + merged * out) * (1 + len(deeper if isinstance(deeper, list) else ()))
        )
    return layers * layer + joined + width * out


def _of_glm(tower: Mapping[str, Any], width: int, layers: int, inner: int) -> int:
    """GLM's towers: MLPs as wide as the decoder, a convolution that merges patches, and an MLP behind it."""
    out = _first(tower, "out_hidden_size") or width
    merged = width * out * (_first(tower, "spatial_merge_size") or 2) ** 2
    return layers * (4 * width**2 + 3 * width * out) + merged + out**2 + 3 * out * inner


def _first(config: Mapping[str, Any], *keys: str) -> int:
    return next((config[key] for key in keys if isinstance(config.get(key), int) and config[key] > 0), 0)
