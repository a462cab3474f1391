"""Trials of a sweep: requests, their carrying out on nodes, records, and the workers that make them."""
