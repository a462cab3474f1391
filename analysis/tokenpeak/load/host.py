"""A load host: `python -m tokenpeak.load.host`, started over SSH, offers its share of orders that come on its input.

It ends when its input does. A controller that has gone therefore leaves no load behind.
"""

import os
import queue
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

from tokenpeak.errors import LoadError
from tokenpeak.load.crew import Crew, Progress, crew
from tokenpeak.load.order import Order
from tokenpeak.load.wire import (
    Message,
    decoded,
    encoded,
    observation_content,
    order_of,
    source_digest,
)


class Host:
    """The host's side of the wire: a thread hears, the main thread works."""

    def __init__(self, heard: BinaryIO, said: BinaryIO) -> None:
        self._in = heard
        self._out = said
        self._lock = threading.Lock()
        self._messages: queue.Queue[Message | None] = queue.Queue()
        self._crew: Crew | None = None

    def work(self) -> None:
        """Answer until the controller has gone, or something is wrong here, which is said first."""
        threading.Thread(target=self._hear, daemon=True).start()
        self._say("hello", source=source_digest(), cores=os.cpu_count() or 1)
        try:
            hire = self._messages.get()
            if hire is None:
                return
            with crew(int(hire["processes"])) as self._crew:
                self._say("hired", processes=self._crew.processes)
                while (offer := self._messages.get()) is not None:
                    self._carry_out(self._crew, offer)
        except (LoadError, ValueError, KeyError, OSError) as error:
            self._say("trouble", text=str(error) or type(error).__name__)

    def _carry_out(self, workers: Crew, offer: Message) -> None:
        order = order_of(offer["order"])
        with tempfile.TemporaryDirectory() as folder:
            order = _trusting(order, offer.get("ca"), Path(folder))
            self._say("ready")
            go = self._messages.get()
            if go is None:
                return
            seen = workers.run(order, self._tell, start=float(go["start_s"]))
        self._say("seen", **observation_content(seen))

    def _tell(self, progress: Progress) -> None:
        self._say("progress", progress=progress)

    def _hear(self) -> None:
        why = "the controller has gone"
        try:
            for line in self._in:
                message = decoded(line)
                if message["kind"] == "ping":
                    self._say("pong", at_s=perf_counter())
                elif message["kind"] == "halt":
                    self._halt(str(message["why"]))
                else:
                    self._messages.put(message)
        except (ValueError, OSError) as error:
            why = str(error)
        self._messages.put(None)
        self._halt(why)

    def _halt(self, why: str) -> None:
        if self._crew is not None:
            self._crew.stop(why)

    def _say(self, kind: str, **content: object) -> None:
        with self._lock:
            try:
                self._out.write(encoded(kind, **content))
                self._out.flush()
            except OSError:
                # The controller has gone; the end of the input says so too.
                return


def _trusting(order: Order, certificates: str | None, folder: Path) -> Order:
    """The order with the controller's own certificates, where it has some, in a file of this host."""
    if certificates is None:
        return order
    path = folder / "ca.pem"
    path.write_text(certificates)
    return replace(order, target=replace(order.target, ca_file=str(path)))


def main() -> None:
    """Serve on standard input and output; whatever else would be printed goes to standard error."""
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    Host(sys.stdin.buffer, said).work()


if __name__ == "__main__":
    main()
