"""Strategies: history in, next trials out; pure, so that any archive can be replayed through them."""
