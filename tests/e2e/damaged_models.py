"""Damaged and quantized copies of a checkpoint: `damaged_models.py MODEL FOLDER KIND[:STRENGTH[:PLACE]] …`.

Run by the engine's own Python. Each copy is FOLDER/KIND-STRENGTH-PLACE (only what was given), and its path is printed.
PLACE is a layer's number or a part of a matrix's name; noise draws by the seed 0.

noise:S        adds normal noise of S times each matrix's own spread
scale:S        multiplies matrices by S, as a wrong scale of a quantized one would
layers:N       keeps the first N layers
zero_heads:N   zeroes the outputs of the last N attention heads of each layer
swap:          exchanges the second and the third layer
theta:S        multiplies the base of the rotary embedding by S
bits:N         rounds each matrix's rows to N bits, with a scale for each row
int8:          rounds rows to eight bits, stored as compressed-tensors that the engine multiplies in eight bits
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

MATRICES = ("proj.weight",)
INT8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "global_compression_ratio": None,
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}

Tensors = dict[str, torch.Tensor]


def chosen(tensors: Tensors, place: str) -> list[str]:
    """The matrices at a place; all for none."""
    part = f"layers.{place}." if place.isdigit() else place
    return [name for name in tensors if name.endswith(MATRICES) and part in name]


def rounded(matrix: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers and the scale of each row."""
    top = 2 ** (bits - 1) - 1
    scale = matrix.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / top
    return (matrix / scale).round().clamp(-top - 1, top), scale


def damage(tensors: Tensors, config: dict, kind: str, strength: str, place: str) -> Tensors:
    """The damaged tensors; `config` is changed in place."""
    found = {name: tensor.float() for name, tensor in tensors.items()}
    torch.manual_seed(0)
    if kind == "noise":
        for name in chosen(found, place):
            found[name] += float(strength) * found[name].std() * torch.randn_like(found[name])
    elif kind == "scale":
        for name in chosen(found, place):
            found[name] *= float(strength)
    elif kind == "layers":
        kept = int(strength)
        config["num_hidden_layers"] = kept
        config.pop("layer_types", None)
        found = {
            n: t for n, t in found.items() if "layers." not in n or int(n.split("layers.")[1].split(".")[0]) < kept
        }
    elif kind == "zero_heads":
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        for name in [name for name in chosen(found, place) if "o_proj" in name]:
            found[name][:, -int(strength) * size :] = 0
    elif kind == "swap":
        exchanged = {"layers.1.": "layers.2.", "layers.2.": "layers.1."}

        def moved(name: str) -> str:
            return next((name.replace(old, new) for old, new in exchanged.items() if old in name), name)

        found = {moved(name): tensor for name, tensor in found.items()}
    elif kind == "theta":
        rope = config.get("rope_parameters") or config
        rope["rope_theta"] = float(rope.get("rope_theta") or 10000.0) * float(strength)
    elif kind == "bits":
        for name in chosen(found, place):
            whole, scale = rounded(found[name], int(strength))
            found[name] = whole * scale
    elif kind == "int8":
        config["quantization_config"] = INT8
        for name in chosen(found, place):
            whole, scale = rounded(found[name], 8)
            found[name], found[f"{name}_scale"] = whole.to(torch.int8), scale
    else:
        sys.exit(f"{kind} is no kind of damage.\n{__doc__}")
    keep = (torch.int8,)
    return {
        name: (t if t.dtype in keep or name.endswith("_scale") else t.to(torch.bfloat16)).contiguous()
        for name, t in found.items()
    }


def main(model: Path, folder: Path, asked: list[str]) -> None:
    """Write the copies."""
    for each in asked:
        kind, strength, place = [*each.split(":"), "", ""][:3]
        target = folder / each.replace(":", "-").rstrip("-")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(model, target)
        config = json.loads((model / "config.json").read_text())
        tensors = damage(load_file(model / "model.safetensors"), config, kind, strength, place)
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        (target / "config.json").write_text(json.dumps(config, indent=1))
        print(target)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
