"""The simulated node: an engine that answers as vLLM does, paced by physics, and its `nvidia-smi`."""
