"""Who holds the other end of a connection, with real sockets of this process and of children."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from tests.free_ports import free_port

from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.sockets import Peer
from tokenpeak.node.production import answering

LISTEN = (
    "import socket,sys,time; s=socket.socket({family}); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
    "s.bind(({address!r}, {port})); s.listen(); print('listens', flush=True);"
    "c=s.accept() if {accepts} else None; print('accepted', flush=True); time.sleep(60)"
)


def listener(address: str, port: int, *, accepts: bool, user: int | None = None) -> "subprocess.Popen[str]":
    """A process that listens, and perhaps accepts."""
    family = "socket.AF_INET6" if ":" in address else "socket.AF_INET"
    script = LISTEN.format(family=family, address=address, port=port, accepts=accepts)
    as_user = ["setpriv", f"--reuid={user}", "--clear-groups"] if user is not None else []
    argv = [*as_user, "/usr/bin/python3" if user is not None else sys.executable, "-c", script]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/")
    assert started.stdout
    assert "listens\n" == started.stdout.readline()
    return started


def end(started: "subprocess.Popen[str]") -> None:
    started.kill()
    started.communicate()


@pytest.mark.parametrize("accepts", [True, False], ids=["accepted", "waits to be accepted"])
@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "127.0.7.9"),
        ("::", "127.0.0.1"),
        ("::", "::1"),
        ("::1", "::1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("::", "::ffff:127.0.0.1"),
    ],
)
def test_other_end_is_found(bound: str, asked: str, accepts: bool) -> None:
    """Over IPv4, IPv6 and either on the other, at one address or at all, before and after it is accepted."""
    port = free_port()
    server = listener(bound, port, accepts=accepts)
    with socket.create_connection((asked, port)) as connection:
        if accepts:
            assert server.stdout
            server.stdout.readline()
        found = sockets.peer(connection)
    end(server)

    assert Peer(True, (os.geteuid(),), (server.pid,)) == found


def test_two_listeners_of_one_port_must_both_be_known() -> None:
    """With SO_REUSEPORT the kernel picks one of several: a connection that waits may go to any of them."""
    port = free_port()
    both = [listener("127.0.0.1", port, accepts=False) for _ in range(2)]
    one_known = answering.of_processes(lambda: lambda pid: pid == both[0].pid, "the engine")
    both_known = answering.of_processes(lambda: lambda pid: pid in [each.pid for each in both], "the engine")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        both_known(connection)
        with pytest.raises(answering.ForeignServerError, match=f"{both[1].pid} python"):
            one_known(connection)
    for each in both:
        end(each)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_maker_of_a_socket_stays_its_user() -> None:
    """A socket that a process of root's holds and another user made is that user's: it was only handed on."""
    port = free_port()
    server = listener("127.0.0.1", port, accepts=False, user=65534)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        found = sockets.peer(connection)
    end(server)

    assert ((65534,), (server.pid,)) == (found.uids, found.pids)
