"""Output of a process as it comes, within a bound: whatever a node prints, no memory and no disk fills up here."""

import contextlib
import os
import threading
from typing import IO

MOST_SAID_BYTES = 1 << 20
"""Of what a process says beside its answer; the last of it says why it ended."""
REST_S = 1.0
"""For the rest of what was said: a process that SSH leaves behind may hold that pipe for ever."""


class OutputReader:
    """What a process writes into a pipe, read by a thread: the last `MOST_SAID_BYTES` of it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.has_ended = threading.Event()
        self._pipe = pipe
        self._data = bytearray()
        threading.Thread(target=self._read, name="output", daemon=True).start()

    def _read(self) -> None:
        with self._pipe, contextlib.suppress(OSError):
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._data += chunk
                del self._data[:-MOST_SAID_BYTES]
        self.has_ended.set()

    def data(self) -> bytes:
        """What was read so far."""
        return bytes(self._data)
