"""Benchmarks of TokenPeak itself: the load generator and the search, each beside its peers. Not in the package."""
