"""Weights by the headers of a checkpoint's files, written here by hand: no byte of theirs is loaded."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from test_shapes import GPT_OSS, LLAMA

from node_models import known_board
from tokenpeak.node.engine.checkpoint import read_checkpoint
from tokenpeak.predict.checkpoint import facts_of
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.memory_plan import memory_on
from tokenpeak.predict.model import ModelFacts

SIZES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}


def write_file(path: Path, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> int:
    """A safetensors file of these names, types and shapes whose data is a hole; its bytes of data."""
    table, at = {}, 0
    for name, dtype, shape in tensors:
        size = SIZES[dtype]
        for side in shape:
            size *= side
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + at)
    return at


def read(folder: Path, config: Mapping[str, object]) -> ModelFacts:
    """The facts of a model in a folder, as a node says them."""
    (folder / "config.json").write_text(json.dumps(config))
    found = read_checkpoint({}, str(folder), {}, None)
    assert found is not None, "it is there"
    facts = facts_of(found, "asked")
    assert facts is not None, "its config.json is read"
    return facts


def layer(number: int, dtype: str, *, prefix: str = "model.") -> Iterable[tuple[str, str, tuple[int, ...]]]:
    """The matrices of a layer of the dense model, with a scale each where they are narrow."""
    name = f"{prefix}layers.{number}."
    shapes = {
        "self_attn.q_proj": (8192, 8192),
        "self_attn.k_proj": (1024, 8192),
        "self_attn.v_proj": (1024, 8192),
        "self_attn.o_proj": (8192, 8192),
        "mlp.gate_proj": (28672, 8192),
        "mlp.up_proj": (28672, 8192),
        "mlp.down_proj": (8192, 28672),
    }
    for module, shape in shapes.items():
        yield f"{name}{module}.weight", dtype, shape
        if dtype == "F8_E4M3":
            yield f"{name}{module}.weight_scale", "F32", (shape[0], 1)
    yield f"{name}input_layernorm.weight", "BF16", (8192,)
    yield f"{name}post_attention_layernorm.weight", "BF16", (8192,)


def ends(prefix: str = "model.") -> Iterable[tuple[str, str, tuple[int, ...]]]:
    """What stands before and behind the layers."""
    yield f"{prefix}embed_tokens.weight", "BF16", (128256, 8192)
    yield f"{prefix}norm.weight", "BF16", (8192,)
    yield "lm_head.weight", "BF16", (128256, 8192)


def test_weights_are_the_bytes_of_the_files(tmp_path: Path) -> None:
    """Of two files and layers of two widths: what they hold, to the byte."""
    first = [*ends(), *(tensor for number in range(20) for tensor in layer(number, "F8_E4M3"))]
    second = [tensor for number in range(20, 40) for tensor in layer(number, "BF16")]
    total = write_file(tmp_path / "model-00001-of-00002.safetensors", first)
    total += write_file(tmp_path / "model-00002-of-00002.safetensors", second)
    facts = read(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "fp8"}})

    assert facts.are_weights_read
    assert total == pytest.approx(facts.weight_bytes(), abs=1)


def test_what_the_engine_does_not_load_is_not_counted(tmp_path: Path) -> None:
    """Layers that predict further tokens, and the output matrix of a model that ties it."""
    kept = [*list(ends())[:2], *(tensor for number in range(40) for tensor in layer(number, "BF16"))]
    ahead = [*layer(40, "BF16"), *layer(0, "BF16", prefix="mtp.")]
    total = write_file(tmp_path / "a.safetensors", kept)
    write_file(tmp_path / "b.safetensors", [*ahead, ("lm_head.weight", "BF16", (128256, 8192))])
    facts = read(tmp_path, {**LLAMA, "tie_word_embeddings": True})

    assert total == pytest.approx(facts.weight_bytes(), abs=1)


def test_a_tower_and_experts_are_found_by_their_names(tmp_path: Path) -> None:
    """Experts are shared out among GPUs and routers are not; names of a model of images and text have a prefix."""
    tensors = [
        ("model.visual.blocks.0.attn.qkv.weight", "BF16", (1000, 1000)),
        ("model.language_model.layers.0.mlp.experts.0.up_proj.weight", "U8", (2000, 1000)),
        ("model.language_model.layers.0.mlp.experts.1.up_proj.weight", "U8", (2000, 1000)),
        ("model.language_model.layers.0.mlp.gate.weight", "BF16", (128, 2880)),
        ("model.language_model.embed_tokens.weight", "BF16", (201088, 2880)),
    ]
    write_file(tmp_path / "model.safetensors", tensors)
    facts = read(tmp_path, {"model_type": "gpt_oss", **GPT_OSS})
    sizes = {part.role: size for part, size in facts.stored_bytes()}

    assert {
        "tower": 2e6,
        "experts": 4e6,
        "replicated": 128 * 2880 * 2,
        "embedding": 201088 * 2880 * 2,
    } == pytest.approx(sizes)


def test_a_plan_takes_them(tmp_path: Path) -> None:
    """Memory of one GPU is that of the files, whatever the method is called."""
    tensors = [*ends(), *(tensor for number in range(40) for tensor in layer(number, "F8_E4M3"))]
    total = write_file(tmp_path / "model.safetensors", tensors)
    facts = read(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "of-tomorrow"}})
    plan = memory_on(known_board("A100 80GB"), facts, {}, {}, "0.24.0", config="asked")

    assert plan is not None
    assert total / GIB == pytest.approx(plan.deployment.weight_bytes_per_gpu / GIB)


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, (5).to_bytes(8, "little") + b"nojs}"])
def test_a_file_that_is_no_checkpoint_says_nothing(tmp_path: Path, data: bytes) -> None:
    """Neither an empty file, nor one of another format, nor half of one stops a probe."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors").write_bytes(data)

    assert read_checkpoint({}, str(tmp_path), {}, None) is None
