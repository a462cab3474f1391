"""Hardware: kinds of hardware, presets and arrangements of GPUs beside each other."""
