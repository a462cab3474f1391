"""Ranking: which config is best, by how much and with what confidence; pure. Terminal, site, CSV and SQL read it."""
