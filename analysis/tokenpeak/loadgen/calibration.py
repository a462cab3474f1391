"""Calibration: the load client's own error on a network path, against a test server that answers at exact moments.

A calibration is good for its network path: which machines offer the load, whether TLS is used, and where the server is.
Each is kept in a file of its own below `calibrations/` in the state folder; a sweep looks up those of its own paths and
attaches them to its archive. An error is what the client reported minus the timetable. Two things in it are not the
client's: the server's own lateness, which it records, and the round trip, which is read from how soon the response's
head came, since the server sends that at once.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import polars as pl
from pydantic import AliasChoices, Field, ValidationError

from tokenpeak import paths
from tokenpeak.errors import LoadError
from tokenpeak.files import write_atomically
from tokenpeak.http_answer import HttpAnswer, HttpAnswerError, ask
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job
from tokenpeak.loadgen.test_server import local_test_server
from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.paths import inside
from tokenpeak.predict.demand import demand
from tokenpeak.records import Record, RunRecord
from tokenpeak.spec.load import ClosedLoad, LoadLevel, OpenLoad, StagedLoad
from tokenpeak.spec.workload import Workload

FORMAT_VERSION = 2
TTFT_S = 0.050
STREAMS = (1, 16, 64, 256, 512, 1024)
TOKEN_RATE_PER_STREAM = 50.0
SECONDS = 4.0
TTFT_ERROR_LIMIT_S = 0.010
ITL_ERROR_LIMIT_S = 0.005
HERE = "this machine"
STATS_LIMIT_BYTES = 64 << 10
TIMETABLE_LIMIT_S = 60.0


class Point(Record):
    """One load and the client's error at it, in seconds."""

    streams: int
    token_rate_per_stream_s: float
    tokens_per_s: float
    sustained_share: float
    """Tokens per second ÷ what the timetable gives."""
    round_trip_p50_s: float
    """From a request's first byte out to the response's first byte in; it is part of TTFT's error."""
    ttft_error_p50_s: float
    ttft_error_p99_s: float
    itl_error_p50_s: float
    itl_error_p99_s: float
    cpu_per_token_s: float | None
    dispatch_delay_p99_s: float | None
    server_lateness_p99_s: float


class NetworkPath(Record):
    """From whom to where, and how."""

    load_hosts: tuple[str, ...] = ()
    """Empty: the machine that ran the calibration."""
    tls: bool = False
    server: str = HERE
    """A node's name, or an address."""

    def __str__(self) -> str:
        """In words."""
        start = f"from {' + '.join(self.load_hosts)} " if self.load_hosts else ""
        return f"{start}to {self.server} over {'https' if self.tls else 'http'}"


class Calibration(Record):
    """The loads that the load client measures well on a network path."""

    format_version: int = FORMAT_VERSION
    measured_at: datetime
    host: str | None
    """The machine that ran it; None where a published copy leaves its name out."""
    cpu_cores: int
    network_path: Annotated[
        NetworkPath, Field(validation_alias=AliasChoices("network_path", "way"), serialization_alias="way")
    ]
    round_trip_s: float
    """At the fewest streams."""
    points: tuple[Point, ...] = Field(min_length=1)
    highest_streams: int
    """The most streams at which TTFT's p99 error stayed under 10 ms and ITL's under 5 ms, and 98% was sustained."""
    highest_tokens_per_s: float


class Setup(Record):
    """How a calibration is carried out: its network path, and what the client needs on it."""

    path: NetworkPath = NetworkPath()
    hosts: tuple[LoadHost, ...] = ()
    ca_file: Path | None = None
    verify_tls: bool = True


def calibration_file(path: NetworkPath) -> Path:
    """Where a network path's calibration is kept."""
    words = [*(path.load_hosts or ("here",)), "https" if path.tls else "http", path.server]
    name = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word) for word in words)
    return inside(paths.state_dir() / "calibrations", f"{name}.json")


def read_calibration(path: NetworkPath) -> Calibration | None:
    """The calibration kept for this network path; None when there is nothing, or something of another format."""
    try:
        return Calibration.model_validate_json(calibration_file(path).read_bytes())
    except (OSError, ValidationError):
        return None


def best_calibration(path: NetworkPath) -> Calibration | None:
    """The network path's own calibration, else that of the same client and protocol on one machine; else None."""
    return read_calibration(path) or read_calibration(path.model_copy(update={"server": HERE}))


def _stats(url: str, setup: Setup) -> dict[str, float]:
    """The test server's timetable, and its lateness since it was last asked; raises LoadError when none answers."""
    place = f"{url.rstrip('/').removesuffix('/v1')}/stats"
    verify = Server(url, verify=setup.verify_tls, ca_file=setup.ca_file).trust(place)

    async def answered() -> HttpAnswer:
        async with httpx.AsyncClient(verify=verify, timeout=10.0, trust_env=False) as client:
            return await ask(client, place, limit_bytes=STATS_LIMIT_BYTES)

    try:
        answer = asyncio.run(answered()).json()
        stats = {name: float(answer[name]) for name in ("ttft_s", "itl_s", "p99_s")}
    except (HttpAnswerError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"No test server answers at {place}: {error}") from error
    if not (0 <= stats["ttft_s"] <= TIMETABLE_LIMIT_S and 0 < stats["itl_s"] <= TIMETABLE_LIMIT_S):
        raise LoadError(f"{place} reports times that no test server has: {stats}.")
    return stats


def _measure(url: str, setup: Setup, level: LoadLevel, output_tokens: int, folder: Path) -> RunRecord:
    workload = {"kind": "synthetic", "name": "timetable", "input_tokens": 128, "output_tokens": output_tokens}
    job = LoadJob.model_validate(
        {
            "base_url": url,
            "model": "timetable",
            "output_dir": folder,
            "hosts": setup.hosts,
            "ca_file": setup.ca_file,
            "verify_tls": setup.verify_tls,
            "runs": [{"run_index": 0, "workload": workload, "level": level.model_dump(exclude_defaults=True)}],
        }
    )
    return run_job(job)[0]


def point(url: str, streams: int, seconds: float, setup: Setup) -> Point:
    """The client's error at so many streams of the server's own timetable."""
    served = _stats(url, setup)
    ttft_s, itl_s = served["ttft_s"], served["itl_s"]
    tokens = max(8, round(seconds / 3 / itl_s))
    with tempfile.TemporaryDirectory() as folder:
        record = _measure(url, setup, ClosedLoad(concurrency=streams, requests=3 * streams), tokens, Path(folder))
        rows = pl.read_parquet(Path(folder) / "requests.parquet", columns=["sent_s", "first_byte_s"])
    late = _stats(url, setup)
    summary = record.summary
    if summary.requests_failed or summary.ttft_s.p99 is None or summary.itl_s.p99 is None:
        raise LoadError(f"The test server failed {summary.requests_failed} requests: {summary.failures}.")
    assert summary.ttft_s.p50 is not None
    assert summary.itl_s.p50 is not None
    round_trip_s = float(np.median((rows["first_byte_s"] - rows["sent_s"]).to_numpy()))
    request_s = ttft_s + (tokens - 1) * itl_s + round_trip_s
    return Point(
        streams=streams,
        token_rate_per_stream_s=1 / itl_s,
        tokens_per_s=summary.output_tok_per_s or 0.0,
        sustained_share=request_s / (summary.latency_s.mean or np.inf),
        round_trip_p50_s=round_trip_s,
        ttft_error_p50_s=summary.ttft_s.p50 - ttft_s,
        ttft_error_p99_s=summary.ttft_s.p99 - ttft_s,
        itl_error_p50_s=summary.itl_s.p50 - itl_s,
        itl_error_p99_s=summary.itl_s.p99 - itl_s,
        cpu_per_token_s=record.client.cpu_per_token_s,
        dispatch_delay_p99_s=record.client.dispatch_delay_s.p99,
        server_lateness_p99_s=late["p99_s"],
    )


def good(measured: Point, round_trip_s: float) -> bool:
    """Whether the client's error, less the server's own lateness and the round trip, is under the limits."""
    return (
        measured.ttft_error_p99_s - measured.server_lateness_p99_s - round_trip_s <= TTFT_ERROR_LIMIT_S
        and measured.itl_error_p99_s - measured.server_lateness_p99_s <= ITL_ERROR_LIMIT_S
        and measured.sustained_share >= 0.98
    )


def calibrate(
    on_point: Callable[[Point], None] = lambda _: None,
    *,
    streams: Sequence[int] = STREAMS,
    seconds: float = SECONDS,
    setup: Setup | None = None,
    server: Callable[[float, float], AbstractContextManager[str]] = local_test_server,
) -> Calibration:
    """Measure the client on a network path and keep the result; `server` serves a TTFT and an ITL at a URL.

    A server that runs already has a TTFT and an ITL of its own.
    """
    setup = setup or Setup()
    points = []
    with server(TTFT_S, 1 / TOKEN_RATE_PER_STREAM) as url:
        for number in streams:
            measured = point(url, number, seconds, setup)
            on_point(measured)
            points.append(measured)
    round_trip_s = min(points, key=lambda measured: measured.streams).round_trip_p50_s
    held = [measured for measured in points if good(measured, round_trip_s)]
    calibration = Calibration(
        measured_at=datetime.now(UTC),
        host=os.uname().nodename,
        cpu_cores=os.cpu_count() or 1,
        network_path=setup.path,
        round_trip_s=round_trip_s,
        points=tuple(points),
        highest_streams=max((measured.streams for measured in held), default=0),
        highest_tokens_per_s=max((measured.tokens_per_s for measured in held), default=0.0),
    )
    file = calibration_file(setup.path)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, calibration.model_dump_json(indent=1, by_alias=True))
    return calibration


def beyond(calibration: Calibration, workload: Workload, level: LoadLevel) -> str | None:
    """Why a load level may not be measured well; None when nothing speaks against it.

    A closed level is judged by its streams, an open one by its cap and by the tokens that it makes due each second.
    """
    streams, rate_per_s = _most(level)
    tokens_per_s = rate_per_s * demand(workload, level).output_tokens
    if streams > calibration.highest_streams:
        excess = f"keeps {streams} streams; {calibration.highest_streams}"
    elif tokens_per_s > calibration.highest_tokens_per_s:
        excess = f"makes {tokens_per_s:,.0f} tok/s due; {calibration.highest_tokens_per_s:,.0f}"
    else:
        return None
    path = calibration.network_path
    return f"{level.label} {excess} were found to be measured well {path}. Use a faster load host, or more."


def _most(level: LoadLevel) -> tuple[int, float]:
    """The most streams and the highest rate that a level is known to have; 0 where it does not say."""
    if isinstance(level, StagedLoad):
        return (
            max(stage.concurrency or 0 for stage in level.stages),
            max(stage.rate_per_s or 0.0 for stage in level.stages),
        )
    streams = level.concurrency if isinstance(level, ClosedLoad) else level.max_concurrency
    return streams or 0, level.rate_per_s if isinstance(level, OpenLoad) else 0.0


def checked(
    network_paths: Iterable[NetworkPath], runs: Sequence[tuple[Workload, LoadLevel]]
) -> tuple[list[Calibration], list[str]]:
    """The calibrations that stand for these network paths, and in sentences which paths or runs they do not cover."""
    calibrations: list[Calibration] = []
    bare: list[str] = []
    doubts: list[str] = []
    for path in network_paths:
        calibration = best_calibration(path)
        if calibration is None:
            bare.append(str(path))
        elif calibration not in calibrations:
            calibrations.append(calibration)
            doubts += [doubt for run in runs if (doubt := beyond(calibration, *run))]
        if calibration is not None and calibration.network_path != path:
            doubts.append(
                f"The calibration was made {calibration.network_path}; the network path {path} is not part of it."
            )
    if bare:
        doubts.append(f"The load client has not been calibrated {', '.join(bare)}.")
    return calibrations, doubts


def as_text(calibration: Calibration) -> str:
    """The calibration as a table."""
    lines = [
        "streams    tok/s  sustained  TTFT error p50/p99 ms  ITL error p50/p99 ms  CPU/token µs  server late p99 ms"
    ]
    lines += [
        f"{each.streams:7d} {each.tokens_per_s:8.0f} {each.sustained_share:9.1%}"
        f"  {each.ttft_error_p50_s * 1e3:9.2f} / {each.ttft_error_p99_s * 1e3:8.2f}"
        f"  {each.itl_error_p50_s * 1e3:8.2f} / {each.itl_error_p99_s * 1e3:8.2f}"
        f"  {(each.cpu_per_token_s or 0) * 1e6:12.1f}  {each.server_lateness_p99_s * 1e3:18.2f}"
        for each in calibration.points
    ]
    lines.append(
        f"Measured well {calibration.network_path}: up to {calibration.highest_streams} streams, "
        f"{calibration.highest_tokens_per_s:,.0f} tok/s. The round trip of {calibration.round_trip_s * 1e3:.2f} ms is "
        f"in TTFT's error. Kept in {calibration_file(calibration.network_path)}."
    )
    return "\n".join(lines)


def calibration_record(calibrations: Sequence[Calibration]) -> dict[str, Any] | None:
    """The record that a sweep attaches to its archive."""
    if not calibrations:
        return None
    return {
        "format_version": FORMAT_VERSION,
        "calibrations": [calibration.model_dump(mode="json", by_alias=True) for calibration in calibrations],
    }
