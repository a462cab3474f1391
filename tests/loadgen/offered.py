"""A load as the load generator itself offers it, in this process: its replies, without job, worker process or record.

`python -m loadgen.offered URL` prints what became of each of two requests, and the most memory that it took.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop

from loadgen.broken_server import Answer, serving
from tokenpeak.loadgen.assignment import LoadAssignment, RequestTemplate
from tokenpeak.loadgen.generator import LoadGenerator
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.http.stream import Reply


def offered(url: str, *, requests: int = 1, concurrency: int = 1, **keys: Any) -> list[Reply]:
    """The replies to a closed loop of so many requests."""
    target = Server(url).target("completions")
    given = {"templates": (RequestTemplate(prefix=b"{}", output_tokens=3),), "caps": ((0.0, concurrency),), **keys}
    assignment = LoadAssignment(target=target, requests=requests, **given)

    async def offer() -> list[Reply]:
        return await LoadGenerator(assignment, perf_counter(), asyncio.get_running_loop()).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(offer())


def observed(answer: Answer, **keys: Any) -> list[Reply]:
    """The replies of a server that answers like this."""
    with serving(answer) as url:
        return offered(url, **keys)


def failure(answer: Answer, **keys: Any) -> str | None:
    """Why the one request to such a server failed."""
    (reply,) = observed(answer, **keys)
    return reply.error


def peak_bytes() -> int:
    """The most memory that this process took; getrusage would count what its starter had before the exec too."""
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) << 10


if __name__ == "__main__":
    errors = [reply.error for reply in offered(sys.argv[1], requests=2, concurrency=2)]
    print(json.dumps({"errors": errors, "peak_bytes": peak_bytes()}))
