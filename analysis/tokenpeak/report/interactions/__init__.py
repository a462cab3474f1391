"""Interactions: what each axis does by itself, and what axes do together."""
