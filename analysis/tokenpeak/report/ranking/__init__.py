"""Ranking: how all configs compare, and the quality of their answers."""
