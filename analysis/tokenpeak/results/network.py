"""Network faults of a run: segments that were lost, and outages of the path, as distinct from pauses of the engine.

What a server sends and the path loses shows on the client's sockets only as late or out of order. So the path is asked
besides: idle connections to the same port, whose keepalive probes the other machine's kernel answers, whatever the
engine behind it does. The kernels do all of it; a thread looks at the answers' times ten times a second.
"""

import errno
import socket
import struct
import threading
from time import perf_counter

_PROBES = 8
"""Idle connections, each of which asks once a second, at moments of its own."""
_ASKED_EVERY_S = 1.0
_LOST_AFTER_S = 1.5
"""Between two answers to one connection: a probe was lost."""
_LOOK_S = 0.1
_AGAIN_S = 1.0
_ESTABLISHED = 1

Span = tuple[float, float]


class Segments:
    """TCP segments of connections, added up as they end."""

    __slots__ = ("out_of_order", "received", "sent", "sent_again")

    def __init__(self) -> None:
        self.received = self.out_of_order = self.sent = self.sent_again = 0

    def add(self, connection: socket.socket) -> None:
        """Count what a connection had; nothing where the kernel does not report it."""
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
        except (OSError, AttributeError):
            return
        if len(info) < 228:
            return
        self.sent_again += struct.unpack_from("I", info, 100)[0]
        sent, received = struct.unpack_from("II", info, 136)
        self.sent += sent
        self.received += received
        self.out_of_order += struct.unpack_from("I", info, 224)[0]


class _Probe:
    """One idle connection, and when it was answered."""

    def __init__(self, address: tuple[str, int], opens_at: float) -> None:
        self._address = address
        self._opens_at = opens_at
        self._socket: socket.socket | None = None
        self._answered_at: float | None = None
        self.answers: list[float] = []
        self.lost: list[float] = []

    def look(self, now: float) -> None:
        """Note an answer, or probes that got none; open the connection anew where it has gone."""
        if self._socket is None:
            if now >= self._opens_at:
                self._open()
            return
        try:
            if self._socket.recv(4096, socket.MSG_DONTWAIT | socket.MSG_PEEK) is not None:
                # The server speaks, or hangs up, unasked: not a path's fault.
                self._close(now)
                return
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                self._close(now)
                return
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        if info[0] != _ESTABLISHED:
            return
        answered_at = now - struct.unpack_from("I", info, 56)[0] / 1e3
        if self._answered_at is not None and answered_at - self._answered_at > _LOST_AFTER_S:
            self._count_lost(self._answered_at, answered_at)
        if self._answered_at is None or answered_at - self._answered_at > _ASKED_EVERY_S / 4:
            self.answers.append(answered_at)
            self._answered_at = answered_at

    def _count_lost(self, answered_at: float, until: float) -> None:
        asked_at = answered_at + _ASKED_EVERY_S
        while asked_at < until - _ASKED_EVERY_S / 4:
            self.lost.append(asked_at)
            asked_at += _ASKED_EVERY_S

    def _open(self) -> None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._socket = made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(_ASKED_EVERY_S))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(_ASKED_EVERY_S))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 120)
        made.connect_ex(self._address)

    def _close(self, now: float) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = self._answered_at = None
        self._opens_at = now + _AGAIN_S

    def end(self, now: float) -> None:
        """Count what is unanswered still, and close."""
        if self._answered_at is not None and now - self._answered_at > _LOST_AFTER_S:
            self._count_lost(self._answered_at, now)
        if self._socket is not None:
            self._close(now)


class PathWatch:
    """Watches the path to a server until it is closed; `outages` says when it was interrupted."""

    def __init__(self, host: str, port: int) -> None:
        self._stop = threading.Event()
        self._target = (host, port)
        self._probes: list[_Probe] = []
        self._thread = threading.Thread(target=self._watch, name="path", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            address = socket.getaddrinfo(*self._target, type=socket.SOCK_STREAM)[0][4]
        except OSError:
            return  # the requests meet the same, and say so
        now = perf_counter()
        self._probes = [
            _Probe((str(address[0]), int(address[1])), now + number * _ASKED_EVERY_S / _PROBES)
            for number in range(_PROBES)
        ]
        while not self._stop.wait(_LOOK_S):
            now = perf_counter()
            for probe in self._probes:
                probe.look(now)
        for probe in self._probes:
            probe.end(perf_counter())

    def outages(self) -> tuple[Span, ...]:
        """From the last answer before each outage to the first one after it, in `perf_counter` seconds."""
        return outages([probe.answers for probe in self._probes], [probe.lost for probe in self._probes])


def outages(answers: list[list[float]], lost: list[list[float]]) -> tuple[Span, ...]:
    """The spans in which two or more connections' probes in a row, of any, were lost, by each one's moments.

    A single lost probe is a lost segment, no outage.
    """
    answered = sorted(moment for moments in answers for moment in moments)
    unanswered = sorted((moment, number) for number, moments in enumerate(lost) for moment in moments)
    silences: dict[Span, set[int]] = {}
    for moment, number in unanswered:
        before = max((at for at in answered if at <= moment), default=None)
        if before is None:
            continue  # never answered yet: nothing is known of this path
        after = min((at for at in answered if at > moment), default=float("inf"))
        silences.setdefault((before, after), set()).add(number)
    last = max((moment for moment, _ in unanswered), default=0.0)
    return tuple(
        (begin, min(end, last + _ASKED_EVERY_S))
        for (begin, end), numbers in sorted(silences.items())
        if len(numbers) > 1
    )
