"""Compare: several sweeps, engine builds and dates beside each other."""
