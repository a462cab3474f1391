"""TokenPeak finds the vLLM settings that serve a model best on your GPU machines, and proves it."""
