"""Benchmarks of TokenPeak itself: load generator and search beside their peers, large results. Not in the package."""
