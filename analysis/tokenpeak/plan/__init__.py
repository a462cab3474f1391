"""What happens before a launch: from a sweep spec and a node's facts to the matrix of configs, and what it costs."""
