"""Error of a node command, in a sentence that a user can act on."""

from __future__ import annotations

import errno

NOT_SEEN = "not_seen"
"""Code of an error that leaves unknown how production stands: it could not be looked at."""
_DESCRIPTORS = "file descriptors are used up: see who has them (`lsof`), end that, or raise the limit"
_REMEDIES = {
    errno.EMFILE: f"this process's {_DESCRIPTORS} (`ulimit -n`)",
    errno.ENFILE: f"the machine's {_DESCRIPTORS} (`sysctl fs.file-max`)",
    errno.EAGAIN: "no further process can be started: end what has too many, or raise its limit (`ulimit -u`)",
    errno.ENOMEM: "the machine's memory is used up: end what has it",
    errno.EROFS: "the disk is read-only, as after an error: see `dmesg`, mend it and mount it again for writing",
    errno.ENOSPC: "the disk is full, or has no inodes left: make room (`df`, `df -i`)",
    errno.EDQUOT: "the quota of this user on the disk is used up: make room",
}


class ScriptError(Exception):
    """A code that programs match, and a text: what happened, the value, and what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def remedy(error: OSError) -> str:
    """The cause and what to do, in brackets, where the kernel's word for what it refused names neither; else empty."""
    known = _REMEDIES.get(error.errno or 0)
    return f" ({known})" if known else ""


def refusal(error: OSError) -> str:
    """The system's refusal, and what to do."""
    return f"{error}{remedy(error)}"
