"""What this machine can measure: the client held against a server of known timetable, over streams and token rates.

The result is written to `calibration.json` in the state folder, and a sweep attaches it to its archive. The server is
a process of its own and records how late it was itself: an error is what the client reported minus the timetable, and
the server's own lateness stands beside it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
from pydantic import Field

from tokenpeak import paths
from tokenpeak.errors import LoadError
from tokenpeak.load.job import LoadJob, run_job, write_atomically
from tokenpeak.records import Record, RunRecord
from tokenpeak.workload import AnyLevel, ClosedLoad, LoadLevel, StagedLoad

FORMAT_VERSION = 1
TTFT_S = 0.050
STREAMS = (1, 16, 64, 256, 512, 1024)
TOKEN_RATE_PER_STREAM = 50.0
SECONDS = 4.0
TTFT_ERROR_LIMIT_S = 0.010
ITL_ERROR_LIMIT_S = 0.005


class Point(Record):
    """One load and the client's error at it, in seconds."""

    streams: int
    token_rate_per_stream_s: float
    tokens_per_s: float
    sustained_share: float
    """Tokens per second ÷ what the timetable gives."""
    ttft_error_p50_s: float
    ttft_error_p99_s: float
    itl_error_p50_s: float
    itl_error_p99_s: float
    cpu_per_token_s: float | None
    dispatch_delay_p99_s: float | None
    server_lateness_p99_s: float


class Calibration(Record):
    """What a load host was found able to measure."""

    format_version: int = FORMAT_VERSION
    measured_at: datetime
    host: str
    cpu_cores: int
    points: tuple[Point, ...] = Field(min_length=1)
    highest_streams: int
    """The most streams at which TTFT's p99 error stayed under 10 ms and ITL's under 5 ms, and 98% was sustained."""
    highest_tokens_per_s: float


def calibration_path() -> Path:
    """Where this machine's calibration is kept."""
    return paths.state_dir() / "calibration.json"


def read_calibration() -> Calibration | None:
    """What was kept for this machine; None when there is nothing, or something of another format."""
    try:
        return Calibration.model_validate_json(calibration_path().read_bytes())
    except (OSError, ValueError):
        return None


def _compiled() -> Path | None:
    """The timetable server as a program, built once with the machine's C compiler; None where there is none."""
    source = Path(__file__).parent / "timetable.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = paths.state_dir() / f"timetable-{digest}"
    if program.is_file():
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        return None
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f".{program.name}.{os.getpid()}")
    built = subprocess.run([compiler, "-O2", "-o", str(partial), str(source)], capture_output=True, check=False)
    if built.returncode != 0:
        return None
    partial.replace(program)
    return program


@contextmanager
def timetable_server(ttft_s: float, itl_s: float) -> Iterator[str]:
    """The address of a timetable server that ends with the block.

    Measured at 1,024 streams × 50 tok/s on one of two cores: the Python server is late by more than the client is, the
    same server in C is not. So it is compiled where the machine has a compiler.
    """
    program = _compiled()
    if program is not None:
        argv = [str(program), "0", str(ttft_s * 1e3), str(itl_s * 1e3)]
    else:
        argv = [sys.executable, "-m", "tokenpeak.load.timetable_server"]
        argv += ["--ttft-ms", str(ttft_s * 1e3), "--itl-ms", str(itl_s * 1e3)]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise LoadError("The timetable server did not start; its message is above.")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def measure(url: str, level: LoadLevel, output_tokens: int, folder: Path) -> RunRecord:
    """One run against a timetable server."""
    job = LoadJob.model_validate(
        {
            "base_url": url,
            "model": "timetable",
            "output_dir": folder,
            "runs": [
                {
                    "run_index": 0,
                    "workload": {
                        "kind": "synthetic",
                        "name": "timetable",
                        "input_tokens": 128,
                        "output_tokens": output_tokens,
                    },
                    "level": level.model_dump(exclude_defaults=True),
                }
            ],
        }
    )
    return run_job(job)[0]


def point(url: str, streams: int, itl_s: float, seconds: float) -> Point:
    """The client's error at so many streams of one token per `itl_s`."""
    tokens = max(8, round(seconds / 3 / itl_s))
    with tempfile.TemporaryDirectory() as folder:
        httpx.get(f"{url}/stats")
        record = measure(url, ClosedLoad(concurrency=streams, requests=3 * streams), tokens, Path(folder))
    late = httpx.get(f"{url}/stats").json()
    summary = record.summary
    if summary.requests_failed or summary.ttft_s.p99 is None or summary.itl_s.p99 is None:
        raise LoadError(f"The timetable server failed {summary.requests_failed} requests: {summary.failures}.")
    assert summary.ttft_s.p50 is not None
    assert summary.itl_s.p50 is not None
    request_s = TTFT_S + (tokens - 1) * itl_s
    return Point(
        streams=streams,
        token_rate_per_stream_s=1 / itl_s,
        tokens_per_s=summary.output_tok_per_s or 0.0,
        sustained_share=request_s / (summary.latency_s.mean or np.inf),
        ttft_error_p50_s=summary.ttft_s.p50 - TTFT_S,
        ttft_error_p99_s=summary.ttft_s.p99 - TTFT_S,
        itl_error_p50_s=summary.itl_s.p50 - itl_s,
        itl_error_p99_s=summary.itl_s.p99 - itl_s,
        cpu_per_token_s=record.client.cpu_per_token_s,
        dispatch_delay_p99_s=record.client.dispatch_delay_s.p99,
        server_lateness_p99_s=late["p99_s"],
    )


def good(found: Point) -> bool:
    """Whether the client's error, less the server's own lateness, is under the limits at this load."""
    return (
        found.ttft_error_p99_s - found.server_lateness_p99_s <= TTFT_ERROR_LIMIT_S
        and found.itl_error_p99_s - found.server_lateness_p99_s <= ITL_ERROR_LIMIT_S
        and found.sustained_share >= 0.98
    )


def calibrate(
    on_point: Callable[[Point], None] = lambda _: None,
    *,
    streams: Sequence[int] = STREAMS,
    rates: Sequence[float] = (TOKEN_RATE_PER_STREAM,),
    seconds: float = SECONDS,
) -> Calibration:
    """Measure this machine's client and keep what was found."""
    points = []
    for rate in rates:
        with timetable_server(TTFT_S, 1 / rate) as url:
            for number in streams:
                found = point(url, number, 1 / rate, seconds)
                on_point(found)
                points.append(found)
    held = [found for found in points if good(found)]
    calibration = Calibration(
        measured_at=datetime.now(UTC),
        host=os.uname().nodename,
        cpu_cores=os.cpu_count() or 1,
        points=tuple(points),
        highest_streams=max((found.streams for found in held), default=0),
        highest_tokens_per_s=max((found.tokens_per_s for found in held), default=0.0),
    )
    path = calibration_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, calibration.model_dump_json(indent=1))
    return calibration


def beyond(calibration: Calibration, level: AnyLevel) -> str | None:
    """Why this machine may not measure a load level well; None when nothing speaks against it."""
    if isinstance(level, ClosedLoad):
        streams: int | None = level.concurrency
    elif isinstance(level, StagedLoad):
        streams = max((stage.concurrency or 0 for stage in level.stages), default=0)
    else:
        streams = getattr(level, "max_concurrency", None)
    if streams and streams > calibration.highest_streams:
        return (
            f"{level.label} keeps {streams} streams; this machine was found to measure {calibration.highest_streams}. "
            "Use a faster load host, or more of them."
        )
    return None


def as_text(calibration: Calibration) -> str:
    """The calibration as a table."""
    lines = [
        "streams    tok/s  sustained  TTFT error p50/p99 ms  ITL error p50/p99 ms  CPU/token µs  server late p99 ms"
    ]
    lines += [
        f"{found.streams:7d} {found.tokens_per_s:8.0f} {found.sustained_share:9.1%}"
        f"  {found.ttft_error_p50_s * 1e3:9.2f} / {found.ttft_error_p99_s * 1e3:8.2f}"
        f"  {found.itl_error_p50_s * 1e3:8.2f} / {found.itl_error_p99_s * 1e3:8.2f}"
        f"  {(found.cpu_per_token_s or 0) * 1e6:12.1f}  {found.server_lateness_p99_s * 1e3:18.2f}"
        for found in calibration.points
    ]
    lines.append(
        f"This machine measures up to {calibration.highest_streams} streams, "
        f"{calibration.highest_tokens_per_s:,.0f} tok/s. Kept in {calibration_path()}."
    )
    return "\n".join(lines)


def calibration_record() -> dict[str, object] | None:
    """What a sweep attaches to its archive."""
    found = read_calibration()
    return None if found is None else json.loads(found.model_dump_json())
