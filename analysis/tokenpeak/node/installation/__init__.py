"""TokenPeak on a node: the packed script, what must be so before it runs, and its removal."""
