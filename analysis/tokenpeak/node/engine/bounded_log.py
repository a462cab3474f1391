"""Log of the engine, bounded on the node's disk: start-up facts are at its beginning, causes at its end.

The engine writes to the file itself, so that nothing between them can end or slow it. The guard, which is there for as
long as a trial is, cuts a log that grows too large out of its middle; so does the trial's end before production starts.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from tokenpeak.node.machine import root_files, trust

KEPT_BYTES = 8 << 20
"""Of a log when its trial has ended: what is collected."""
MOST_BYTES = 4 * KEPT_BYTES
"""Of a log that is being written: so it is cut seldom."""
_MARK_BYTES = 64
_MARK = re.compile(rb"\n\[(\d{1,20}) bytes left out\]\n")
_BLOCK_BYTES = 512


def bound(log: Path) -> None:
    """Cut a log that is being written, where it has grown too large."""
    if _size(log) > MOST_BYTES:
        cut(log)


def cut(log: Path) -> None:
    """Keep the first and the last part of a log; nothing else is lost where the disk refuses that."""
    with suppress(OSError):
        if _size(log) <= KEPT_BYTES:
            return
        part = (KEPT_BYTES - _MARK_BYTES) // 2
        with log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(part)
            before = _MARK.match(stream.read(_MARK_BYTES))
        # Room that was only reserved, beyond its end, is given back as well.
        end = trust.read_end(log, part) if size > KEPT_BYTES else b""
        if end:
            # What earlier cuts left out is gone with their mark.
            left_out = size - 2 * part + (int(before[1]) - len(before[0]) if before else 0)
            end = f"\n[{left_out} bytes left out]\n".encode() + end
        root_files.cut(log, part if end else size, end)


def _size(log: Path) -> int:
    """The bytes that it takes of the disk, or would if it had no holes; 0 where there is none."""
    try:
        facts = log.stat()
    except OSError:
        return 0
    # File systems reserve some room beyond a file's end.
    return max(facts.st_size, facts.st_blocks * _BLOCK_BYTES - MOST_BYTES)
