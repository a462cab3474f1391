"""HTTP/1.1 of the load generator: connections, stamped streams, and the server that they reach."""
