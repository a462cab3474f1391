"""Trials: the page of each launch, and where a sweep's time went."""
