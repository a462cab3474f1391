"""The load client: an instrument that offers a workload at a load level and measures what comes back."""
