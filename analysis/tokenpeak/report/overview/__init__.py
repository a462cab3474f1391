"""Overview: what to run, how much better it is, and what to do next."""
