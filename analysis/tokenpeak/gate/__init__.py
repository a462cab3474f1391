"""The gate: whether what was measured anew is worse than what was measured before, for CI and for people."""
