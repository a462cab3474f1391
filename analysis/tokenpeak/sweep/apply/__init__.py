"""Apply of a config to production, and rollback."""
