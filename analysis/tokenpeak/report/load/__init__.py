"""Load: curves over rising loads, and the highest rate within the SLO."""
