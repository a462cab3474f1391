"""Plan of a sweep before any launch: from its spec and a node's facts to the matrix of configs and its cost."""
