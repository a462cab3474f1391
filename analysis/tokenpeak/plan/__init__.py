"""From a sweep spec and the facts of a node to the matrix of configs worth trying, with a prediction of each."""
