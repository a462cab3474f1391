"""Intervals, ties, effects and drift; pure, used by the search and by the report."""
