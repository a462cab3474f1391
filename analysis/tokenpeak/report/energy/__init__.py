"""Energy: what a million tokens take in energy, CO₂, water and money."""
