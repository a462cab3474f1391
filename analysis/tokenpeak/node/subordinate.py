"""Subordinate ids: users of no account that belong to an account, for what runs in its containers."""

from __future__ import annotations

import pwd
from pathlib import Path

FILE = Path("/etc/subuid")


def of_user(account: pwd.struct_passwd) -> list[range]:
    """The ids that are subordinate to a user."""
    return [ids for owner, ids in _declared() if owner in (account.pw_name, str(account.pw_uid))]


def owners() -> list[tuple[range, int]]:
    """All subordinate ids, each with the user to whom they are."""
    found = []
    for owner, ids in _declared():
        try:
            found.append((ids, int(owner) if owner.isdecimal() else pwd.getpwnam(owner).pw_uid))
        except KeyError:
            continue
    return found


def _declared() -> list[tuple[str, range]]:
    """Owner, by name or number, and the ids of each line; none where there is no such file."""
    try:
        lines = FILE.read_text(errors="replace").splitlines()
    except OSError:
        return []
    cells = [line.strip().split(":") for line in lines]
    rows = [row for row in cells if len(row) == 3 and row[1].isdecimal() and row[2].isdecimal()]
    return [(owner, range(int(first), int(first) + int(number))) for owner, first, number in rows]
