"""Requests: how long single requests take, and the engine's queue."""
