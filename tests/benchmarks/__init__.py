"""Benchmarks of the load client beside its peers, and simulated servers whose sustainable rate is known."""
