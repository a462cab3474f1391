"""Quality of a config: how far its answers are from the reference config's."""
