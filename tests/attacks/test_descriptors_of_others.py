"""A local user opens a great many descriptors: millions, with as many processes as he may have.

Whoever answers at an address is looked for among all descriptors of the machine, so that one check took 16 s and
production's failed in its time. Of another user than the socket's only so many are looked at, those of his subordinate
ids among them, and a check is no part of the time that a request has. Nor are the machine's sockets all held in memory.
"""

import os
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import sockets, users

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")

DESCRIPTORS = 300
PROCESSES = 3
SUBORDINATE = 200_000
OPEN = f"import os, time; [os.dup(0) for _ in range({DESCRIPTORS})]; print(flush=True); time.sleep(600)"


@contextmanager
def flood(*inherited: int, first: int = ATTACKER, step: int = 0) -> Iterator[set[int]]:
    """Processes of the attacker with many descriptors, or of one id each from `first` on; their pids."""
    started = [
        subprocess.Popen(
            ["setpriv", f"--reuid={first + number * step}", "--clear-groups", "/usr/bin/python3", "-c", OPEN],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd="/",
            pass_fds=inherited,
            close_fds=True,
        )
        for number in range(PROCESSES)
    ]
    for each in started:
        assert each.stdout
        each.stdout.readline()
    yield {each.pid for each in started}
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.parametrize(("first", "step"), [(ATTACKER, 0), (SUBORDINATE, 1)], ids=["one user", "subordinate ids"])
def test_a_user_s_descriptors_are_looked_at_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, step: int
) -> None:
    """In all of his processes together; the socket's own process is found all the same."""
    (tmp_path / "subuid").write_text(f"unknown:1:5\n{ATTACKER}:{SUBORDINATE}:65536\n")
    monkeypatch.setattr(users, "FILE", tmp_path / "subuid")
    looks: list[str] = []
    leads_to = sockets._leads_to

    def counted(path: str) -> str | None:
        looks.append(path)
        return leads_to(path)

    monkeypatch.setattr(sockets, "_leads_to", counted)
    monkeypatch.setattr(sockets, "MOST_DESCRIPTORS", DESCRIPTORS // 2)
    with socket.create_server(("127.0.0.1", 0)) as server, flood(first=first, step=step) as attackers:
        with socket.create_connection(server.getsockname()) as connection:
            found = sockets.peer(connection)
        looked = [path for path in looks if int(path.split("/")[2]) in attackers]

    assert (os.getpid(),) == found.pids
    # Another process of that user, of another test say, counts as well.
    assert 0 < len(looked) <= DESCRIPTORS // 2


def test_every_holder_within_the_bound_is_found() -> None:
    """A process of another user that holds the socket as well is not overlooked: a key goes to none but production."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, flood(server.fileno()) as attackers, socket.create_connection(server.getsockname()) as connection:
        found = sockets.peer(connection)

    assert {os.getpid(), *attackers} == set(found.pids)


def test_sockets_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A great many sockets of somebody, at the very port too, are not held in memory, and not read once it is found."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        accepted, _ = server.accept()
        port = f"{server.getsockname()[1]:04X}"
        (own,) = [
            row
            for row in Path(sockets.TABLES[0]).read_text().splitlines()
            if row.split()[1].endswith(f":{port}") and row.split()[3] == "01"
        ]
        other = " 1: {}:{} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534 0 9 1 0 100 0 0 10 0\n"
        many = "".join(other.format(f"{number:08X}", port if number % 2 else "7530") for number in range(20_000))
        table = tmp_path / "tcp"
        table.write_text(f"  sl\n{many}{own}\nnothing that can be read")
        monkeypatch.setattr(sockets, "TABLES", (str(table),))
        tracemalloc.start()
        found = sockets.peer(connection)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        accepted.close()

    assert (os.getpid(),) == found.pids
    assert peak_bytes < 1 << 20


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_check_is_no_part_of_a_request_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes longer than the request may does not end it."""
    monkeypatch.setattr(serving, "ENDING_S", 0.1)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/health"
        answer = serving.request(url, timeout_s=0.2, check=lambda _: time.sleep(0.6))
        server.shutdown()

    assert 200 == answer.status, answer
