"""Free ports for servers that a test starts later: none is handed out twice by a process of a test run, nor by two."""

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
    """A port that nobody has, and that was not handed out before it had been some nine hundred others' turn."""
    while True:
        port = _FIRST + next(_numbers) % PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
