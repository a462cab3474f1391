"""Server that notes when each request has arrived whole: a process of its own, without a framework or the product.

It prints its port, answers each completion at once, and prints the moments as JSON when its input ends.
"""

import contextlib
import gc
import json
import os
import re
import select
import socket
import sys
import time

ANSWER = (
    b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"text":"b","finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}\n\n'
    b"data: [DONE]\n\n"
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def main() -> None:
    """Serve until the input ends."""
    # A collection would look like a late request, as would a turn of another process.
    gc.disable()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    arrived: list[float] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
    clients: dict[int, tuple[socket.socket, bytearray]] = {}
    while True:
        for number, _ in poll.poll():
            if number == sys.stdin.fileno():
                print(json.dumps(arrived), flush=True)
                return
            if number == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = (client, bytearray())
                poll.register(client, select.EPOLLIN)
                continue
            client, data = clients[number]
            now, more = time.perf_counter(), client.recv(1 << 16)
            if not more:
                poll.unregister(number)
                client.close()
                del clients[number]
                continue
            data += more
            while (end := data.find(b"\r\n\r\n")) >= 0:
                head = bytes(data[:end])
                length = LENGTH.search(head)
                whole = end + 4 + (int(length[1]) if length else 0)
                if len(data) < whole:
                    break
                del data[:whole]
                if b"/v1/completions" in head:
                    arrived.append(now)
                    client.sendall(HEAD + ANSWER)
                else:
                    client.sendall(ABSENT)


if __name__ == "__main__":
    main()
