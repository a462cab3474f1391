"""Production: what it is, who answers for it, how it is drained, changed, stopped and brought back."""
