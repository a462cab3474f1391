"""A stand-in engine that logs its own life and each request: `standin_engine.py LOG_DIR serve MODEL --port P …`.

It is the simulated engine with a witness: what it served, and when, is written where the product does not look. The
oracle compares the archive with this log. Events, one JSON object a line, all with `t` (unix seconds):

    start, with argv    alive, five times a second    end    request, when a completion has been answered in full
"""

import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

ALIVE_S = 0.2
USAGE = re.compile(rb'"completion_tokens": ?(\d+)')


class Witness:
    """The log of this process."""

    def __init__(self, folder: Path, port: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stream = (folder / f"{port}-{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()

    def note(self, event: str, **more: Any) -> None:
        """Write an event."""
        with self._lock:
            self._stream.write(json.dumps({"t": round(time.time(), 4), "event": event, **more}) + "\n")

    def live(self) -> None:
        """Say so for as long as this process runs."""
        while True:
            self.note("alive")
            time.sleep(ALIVE_S)


def watch_requests(witness: Witness) -> None:
    """Let each answer of the simulated engine's server be logged with its tokens and times."""
    from tokenpeak.sim import http

    answer, end, head = http.HttpConnection._answer, http.HttpConnection.end, http.HttpReply._head

    def headed(self: Any, status: int) -> str:
        self._connection.witnessed_status = status
        return head(self, status)

    def begun(self: Any, request: Any) -> None:
        self.witnessed_s, self.witnessed_path = time.time(), request.path
        answer(self, request)

    def ended(self: Any, reply: Any, data: bytes) -> None:
        is_last, began, path = reply is self._reply, self.witnessed_s, self.witnessed_path
        status = self.witnessed_status
        # The next request may begin within.
        end(self, reply, data)
        if is_last and path.endswith("completions"):
            found = USAGE.findall(data)
            tokens = int(found[-1]) if found else 0
            witness.note("request", began=round(began, 4), status=status, tokens=tokens)

    http.HttpConnection._answer, http.HttpConnection.end, http.HttpReply._head = begun, ended, headed


def main() -> int:
    """Serve as the simulated engine does; its exit status."""
    folder, *argv = sys.argv[1:]
    if argv[:1] != ["serve"]:
        from tokenpeak.sim.engine import main as engine

        return engine(argv)
    port = argv[argv.index("--port") + 1] if "--port" in argv else "unknown"
    witness = Witness(Path(folder), port)
    witness.note("start", argv=argv)
    threading.Thread(target=witness.live, daemon=True).start()
    watch_requests(witness)
    from tokenpeak.sim.engine import main as engine

    try:
        return engine(argv)
    finally:
        witness.note("end")


if __name__ == "__main__":
    sys.exit(main())
