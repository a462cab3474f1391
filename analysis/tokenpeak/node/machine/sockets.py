"""Sockets of this machine by the kernel's tables: who listens at an address, who holds the other end of a connection.

A port does not say who answers there. /proc/net/tcp says which socket is the other end of a connection and which user
made it, and /proc/PID/fd which processes hold it.
"""

from __future__ import annotations

import os
import socket
import struct
from itertools import islice
from pathlib import Path
from typing import Collection, Iterable, Iterator, NamedTuple

from tokenpeak.node.machine import process_files, users, words

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ROOT = 0
_ESTABLISHED, _SYN_RECEIVED, _LISTEN = "01", "03", "0A"
_ANY = ("0" * 8, "0" * 32)
_MAPPED = "0000000000000000FFFF0000"
"""Prefix of an IPv4 address on an IPv6 socket, as the kernel writes it."""

MOST_DESCRIPTORS = 20_000
"""Looked at of another user than the socket's, in all processes of that user's and of his subordinate ids together.

A tenth of a second's work. Not of all users together: whoever opened so many would hide production's process behind a
socket that systemd made.
"""


class Row(NamedTuple):
    """A socket of a table. `inode` is 0 for one that no process has accepted yet, or that none holds any more."""

    local: str
    remote: str
    state: str
    uid: int
    inode: int


class Listener(NamedTuple):
    """A socket that listens at an address; `pids` are empty where they are hidden from this user."""

    address: str
    uid: int
    pids: tuple[int, ...]


class Peer(NamedTuple):
    """The other end of a connection.

    Not `is_here`: no socket of this network namespace, so only root can have led the connection there. `uids` made the
    socket: a process that only holds it cannot change that. `pids` hold it; empty where they are hidden from this user.
    """

    is_here: bool
    uids: tuple[int, ...]
    pids: tuple[int, ...]

    @property
    def text(self) -> str:
        """`pid name of user UID` of each holder."""
        if not self.is_here:
            return "a process outside this machine's network namespace"
        users = " and ".join(str(uid) for uid in self.uids) or "unknown"
        names = [name for name in (shown(pid) for pid in self.pids) if name]
        return f"{', '.join(names) or 'a process that cannot be seen'} of user {users}"


def peer(connection: socket.socket) -> Peer:
    """Who holds the other end of this very connection now.

    Of a connection that waits to be accepted: whoever listens there, all of them where there are several. It can go to
    nobody else: when its listener closes, the kernel resets it.
    """
    ours, theirs = _names(connection.getsockname()), _names(connection.getpeername())
    for table in TABLES:
        port = connection.getpeername()[1]
        row = next((row for row in read_table(table, port) if row.local in theirs and row.remote in ours), None)
        if row is None:
            continue
        if row.inode:
            return Peer(True, (row.uid,), holders([row]))
        if row.state not in (_ESTABLISHED, _SYN_RECEIVED):
            return Peer(True, (), ())
        listening = _listening(read_table(table, port), {name.rpartition(":")[0] for name in theirs}, port)
        return Peer(True, tuple(sorted({row.uid for row in listening})), holders(listening))
    return Peer(False, (), ())


def listeners(host: str, port: int) -> list[str]:
    """`pid name` of the processes that listen on a TCP port of `host`, as far as this user may see them."""
    wanted: set[str] = set()
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        addresses = []
    for _, _, _, _, address in addresses:
        wanted |= _addresses(str(address[0]))
    rows = [row for table in TABLES for row in _listening(read_table(table, port), wanted, port)]
    return sorted(filter(None, (shown(pid) for pid in holders(rows))))


def listening_at(port: int) -> list[Listener]:
    """Who listens on a TCP port of this machine, at whatever address."""
    rows = (row for table in TABLES for row in read_table(table, port) if row.state == _LISTEN)
    return [Listener(_plain(row.local.rpartition(":")[0]), row.uid, holders([row])) for row in rows]


def read_table(path: str, port: int) -> Iterator[Row]:
    """The sockets of a table at a port of this machine, one by one: any user may have a great many.

    None where there is no such table, as without IPv6.
    """
    ending = f":{port:04X}"
    try:
        with Path(path).open() as lines:
            for line in lines:
                if ending not in line:
                    continue
                cells = line.split()
                if cells[1].endswith(ending):
                    yield Row(cells[1], cells[2], cells[3], int(cells[7]), int(cells[9]))
    except FileNotFoundError:
        return


def holders(rows: Collection[Row]) -> tuple[int, ...]:
    """The processes that hold one of these sockets, as far as this user may see them and within the bound."""
    wanted = {f"socket:[{row.inode}]" for row in rows if row.inode}
    if not wanted:
        return ()
    makers = {_ROOT, *(row.uid for row in rows)}
    left: dict[int, int] = {}
    subordinates = users.owners()
    pids = []
    for pid in process_files.pids():
        other = next((uid for uid in process_files.ordered_user_ids(pid) if uid not in makers), None)
        if other is None:
            holds, _ = _looked_through(pid, wanted, None)
        else:
            user = next((owner for ids, owner in subordinates if other in ids), other)
            holds, number = _looked_through(pid, wanted, left.setdefault(user, MOST_DESCRIPTORS))
            left[user] -= number
        if holds:
            pids.append(pid)
    return tuple(sorted(pids))


def shown(pid: int) -> str | None:
    """`pid name` of a process; None when it has ended since."""
    try:
        return f"{pid} {words.visible(Path('/proc', str(pid), 'comm').read_text(errors='replace').strip())}"
    except OSError:
        return None


def _listening(rows: Iterable[Row], addresses: set[str], port: int) -> list[Row]:
    """The rows that listen on the port of one of these addresses, or of all."""
    wanted = {f"{address}:{port:04X}" for address in (*addresses, *_ANY)}
    return [row for row in rows if row.state == _LISTEN and row.local in wanted]


def _names(address: tuple[object, ...]) -> set[str]:
    """`ADDRESS:PORT` of a socket's end, as the tables write it."""
    return {f"{name}:{int(str(address[1])):04X}" for name in _addresses(str(address[0]))}


def _addresses(address: str) -> set[str]:
    """An IP address as the tables write it; an IPv4 one also as it stands on an IPv6 socket."""
    plain = address.partition("%")[0]
    if plain.startswith("::ffff:") and "." in plain:
        plain = plain[len("::ffff:") :]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in plain else socket.AF_INET, plain)
    # Words of four bytes, in the order of a little-endian machine.
    text = "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
    return {text} if ":" in plain else {text, _MAPPED + text}


def _looked_through(pid: int, wanted: set[str], most: int | None) -> tuple[bool, int]:
    """Whether the process holds one of these, by its first `most` descriptors, and how many were looked at."""
    number = 0
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            for descriptor in islice(descriptors, most):
                number += 1
                if _leads_to(descriptor.path) in wanted:
                    return True, number
    except OSError:
        return False, number
    return False, number


def _leads_to(path: str) -> str | None:
    """The target of a descriptor; None when it has been closed since."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _plain(name: str) -> str:
    """An address of a table as people write it: the kernel writes words of 32 bits in the machine's own order."""
    words = [int(name[place : place + 8], 16) for place in range(0, len(name), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, raw)
