"""Performance model: what a config will do on a node, from the model's shape, the GPUs' facts and the memory plan."""
