"""Writes LoRA adapters of random weights for the small model; the engine's Python runs it with FOLDER NAME …."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, RANK = 4, 192, 4
OUT = {"q_proj": 256, "v_proj": 128}

for seed, name in enumerate(sys.argv[2:]):
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for module, out in OUT.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{place}.lora_A.weight"] = torch.randn(RANK, HIDDEN) * 0.5
            weights[f"{place}.lora_B.weight"] = torch.randn(out, RANK) * 0.5
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 8, "bias": "none"}
    config |= {"target_modules": list(OUT), "base_model_name_or_path": "small"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
