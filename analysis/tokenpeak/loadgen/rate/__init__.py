"""Sustainable rate: a queue model of the engine, the search over it, and the probes that feed it."""
