"""What runs on a node: standard library only, Python ≥ 3.8, packed into one root-owned file."""
