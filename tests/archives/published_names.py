"""The ids of the five published archives."""

V100, A100, H200, T4, PRESETS = (
    "v100-deepseek-r1-32b",
    "a100x8-llama70b",
    "h200-llama70b-fp8",
    "t4-mistral7b",
    "multi-gpu-presets",
)
