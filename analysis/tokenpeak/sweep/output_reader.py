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
    """What a process writes into a pipe, read by a thread; of more than `most` bytes the last, or it ends as full."""

    def __init__(self, pipe: IO[bytes], most: int, *, is_tail: bool = False) -> None:
        self.has_ended = threading.Event()
        self.is_full = False
        self._pipe = pipe
        self._most = most
        self._is_tail = is_tail
        self._data = bytearray()
        threading.Thread(target=self._read, name="output", daemon=True).start()

    def _read(self) -> None:
        with self._pipe, contextlib.suppress(OSError):
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._data += chunk
                if len(self._data) <= self._most:
                    continue
                if not self._is_tail:
                    self.is_full = True
                    break
                del self._data[: -self._most]
        self.has_ended.set()

    def data(self) -> bytes:
        """All that was read so far."""
        return bytes(self._data)

    def text(self) -> str:
        """The same as text."""
        return self._data.decode(errors="replace")
