"""Workers that send requests: local processes and load hosts, and what they say to each other."""
