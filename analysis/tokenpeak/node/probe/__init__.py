"""Probe of a node: boards, engines, models, machine."""
