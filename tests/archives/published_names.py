"""The ids of the five published archives, and how much each holds."""

V100, A100, H200, T4, PRESETS = (
    "v100-deepseek-r1-32b",
    "a100x8-llama70b",
    "h200-llama70b-fp8",
    "t4-mistral7b",
    "multi-gpu-presets",
)

TRIALS = {V100: 13, A100: 6, H200: 7, T4: 4, PRESETS: 87}
PRESET_ROWS = 74
"""Rows of the table of presets; the other trials of that archive are of its other tables."""
CLAIM_COUNT = 35
