"""Free ports for servers that a test starts later: two processes of a test run have none in common."""

import itertools
import os
import secrets
import socket
from contextlib import suppress

PORTS = 1000
"""Each process of a test run has so many of its own: one that is free here is another's a moment later."""
_FIRST = 20_000 + PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 12)
"""Below those that the kernel gives to connections meanwhile."""
_numbers = itertools.count(secrets.randbelow(PORTS))


def free_port() -> int:
    """A port that nobody has; the same one comes again only after all others have had their turn."""
    while True:
        port = _FIRST + next(_numbers) % PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
