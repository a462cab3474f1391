"""All runs of one launch: reads a job, offers each run's load, writes what was seen.

Written into `output_dir`: `runs.json` (a list of RunRecord; energy is the caller's to add), `requests.parquet` and
`metrics.json` (the 1 Hz series of the engine's /metrics on the trial's clock). `progress_file` is rewritten about once
a second.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from tokenpeak.errors import LoadError
from tokenpeak.load import rows
from tokenpeak.load.arrivals import timetable
from tokenpeak.load.crew import Crew, Observation, Progress, crew
from tokenpeak.load.order import Order
from tokenpeak.load.prompts import make
from tokenpeak.load.scrape import Sample, Scraper, counters, restarted
from tokenpeak.load.summary import distribution, slo_met, summarize
from tokenpeak.load.target import Server
from tokenpeak.load.tokens import Vocabulary, learn
from tokenpeak.load.verdict import Evidence, judge
from tokenpeak.records import ClientHealth, RunRecord
from tokenpeak.workload import ClosedLoad, Declaration, LoadLevel, OpenLoad, Slo, Workload

STREAMS_PER_PROCESS = 1024


class JobRun(Declaration):
    """One workload at one load level."""

    run_index: NonNegativeInt
    workload: Workload
    level: LoadLevel
    slo: Slo = Slo()
    seed: int = 0


class LoadJob(Declaration):
    """The runs of one launch, in order, and the server they are for."""

    base_url: str
    model: str
    """The name that requests ask for."""
    runs: tuple[JobRun, ...] = Field(min_length=1)
    output_dir: Path
    trial_started_at_unix_s: float | None = None
    """The zero of the trial's clock; None: when the job starts."""
    api_key_file: Path | None = None
    headers: dict[str, str] = {}
    verify_tls: bool = True
    ca_file: Path | None = None
    reuse_connections: bool = True
    metrics_url: str | None = None
    """None: /metrics beside the API; a server without one leaves the engine's side out."""
    progress_file: Path | None = None
    processes: PositiveInt | None = None
    """None: as many as the highest load level needs."""
    run_deadline_s: PositiveFloat = 900
    stall_s: PositiveFloat = 120
    drain_s: PositiveFloat = 60


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a job is; what the progress file holds."""

    run_index: int
    level_label: str
    phase: str
    requests_done: int
    requests_total: int | None
    output_tok_per_s: float | None = None
    ttft_s_p50: float | None = None


OnStatus = Callable[[Status], None]


def read_job(path: Path) -> LoadJob:
    """The job in a JSON file; raises LoadError saying which key is wrong."""
    try:
        return LoadJob.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} is not a load job: {error}") from error


def run_job(job: LoadJob, on_status: OnStatus = lambda _: None) -> tuple[RunRecord, ...]:
    """Carry out every run of a job and write its three files; raises LoadError when no load can be offered at all."""
    job.output_dir.mkdir(parents=True, exist_ok=True)
    server = _server(job)

    def tell(status: Status) -> None:
        if job.progress_file is not None:
            write_atomically(job.progress_file, json.dumps(status.__dict__))
        on_status(status)

    # The two clocks are read together: wall-clock time names the zero, the monotonic clock does the measuring.
    now_unix, now = time.time(), time.perf_counter()
    origin = now - (now_unix - (job.trial_started_at_unix_s or now_unix))
    scraper = Scraper(job.metrics_url or f"{server.root}/metrics", server.headers, verify=server.trust())
    vocabulary = asyncio.run(_learn(server, job.model))
    records: list[RunRecord] = []
    tables: list[pl.DataFrame] = []
    processes = job.processes or max(_processes(run.level) for run in job.runs)
    try:
        scraper.start()
        with crew(processes) as workers:
            for run in job.runs:
                record, table = _Run(job, run, server, vocabulary, scraper, workers, origin, tell).carry_out()
                records.append(record)
                tables.append(table)
    finally:
        scraper.stop()
        rows.write(job.output_dir / "requests.parquet", tables)
        write_atomically(job.output_dir / "metrics.json", scraper.series(origin).model_dump_json())
        write_atomically(
            job.output_dir / "runs.json", json.dumps([record.model_dump(mode="json") for record in records])
        )
    return tuple(records)


def _server(job: LoadJob) -> Server:
    key = None
    if job.api_key_file is not None:
        try:
            key = job.api_key_file.read_text().strip()
        except OSError as error:
            raise LoadError(f"The API key's file cannot be read: {error}") from error
    return Server(
        job.base_url,
        api_key=key,
        headers=job.headers,
        verify=job.verify_tls,
        ca_file=job.ca_file,
        reuse_connections=job.reuse_connections,
    )


async def _learn(server: Server, model: str) -> Vocabulary:
    async with server.client() as client:
        return await learn(client, model)


def _processes(level: LoadLevel) -> int:
    streams = level.concurrency if isinstance(level, ClosedLoad) else level.max_concurrency or 1
    return max(1, min((os.cpu_count() or 2) - 1, -(-streams // STREAMS_PER_PROCESS)))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by its new text, never by a part of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


class _Run:
    """One run of a job, from draining the engine to its record."""

    def __init__(
        self,
        job: LoadJob,
        run: JobRun,
        server: Server,
        vocabulary: Vocabulary,
        scraper: Scraper,
        workers: Crew,
        origin: float,
        tell: OnStatus,
    ) -> None:
        self.job = job
        self.run = run
        self.server = server
        self.vocabulary = vocabulary
        self.scraper = scraper
        self.workers = workers
        self.origin = origin
        self.tell = tell

    def _status(self, phase: str, progress: Progress | None = None, **rates: float | None) -> None:
        self.tell(
            Status(
                run_index=self.run.run_index,
                level_label=self.run.level.label,
                phase=phase,
                requests_done=int((progress or {}).get("ended") or 0),
                requests_total=self._total(),
                **rates,
            )
        )

    def _total(self) -> int | None:
        level = self.run.level
        return None if level.requests is None else level.requests + level.warmup_requests

    def order(self) -> Order:
        """What the workers are to send."""
        run, level = self.run, self.run.level
        due = timetable(level, run.seed) if isinstance(level, OpenLoad) else None
        number = len(due) if due is not None else self._total()
        # Salts must differ between runs, sweeps and hosts that share a server, and be found again from the record.
        salt = f"{int(self.origin_unix() * 1e3) % 2**32:08x}{run.run_index:02x}"
        prompts = make(run.workload, self.job.model, self.vocabulary, number=number, seed=run.seed, salt=salt)
        return Order(
            target=self.server.target(run.workload.endpoint),
            asks=prompts.asks,
            talks=prompts.talks,
            talk_options=prompts.talk_options,
            think_time_s=prompts.think_time_s,
            resalt=prompts.resalt,
            salt_ids=self.vocabulary.ids if run.workload.endpoint == "completions" else (),
            due_s=due,
            caps=((0.0, level.concurrency),) if isinstance(level, ClosedLoad) else (),
            max_in_flight=level.max_concurrency if isinstance(level, OpenLoad) else None,
            requests=self._total(),
            duration_s=level.duration_s,
            warmup_requests=level.warmup_requests,
            stall_s=self.job.stall_s,
            deadline_s=self.job.run_deadline_s,
        )

    def origin_unix(self) -> float:
        """The trial's start as wall-clock time."""
        return time.time() - (time.perf_counter() - self.origin)

    def carry_out(self) -> tuple[RunRecord, pl.DataFrame]:
        """The run's record and its requests."""
        self._status("draining")
        drained = self.scraper.drained(self.job.drain_s)
        order = self.order()
        self._status("loading")
        seen: list[tuple[float, float]] = []

        def on_progress(progress: Progress) -> None:
            now = time.perf_counter()
            seen.append((now, float(progress["packets"] or 0)))
            (begin, before), (end, after) = seen[max(0, len(seen) - 4)], seen[-1]
            rate = max(0.0, after - before) / (end - begin) if end > begin else None
            self._status("loading", progress, output_tok_per_s=rate, ttft_s_p50=progress["ttft_s_p50"])

        began_at = datetime.now(UTC)
        before = self.scraper.sample()
        seen_by_client = self.workers.run(order, on_progress)
        after = self.scraper.sample()
        self._status("reading", {"ended": len(seen_by_client.replies)})
        samples = self.scraper.between(
            before.at_s if before is not None else seen_by_client.start,
            after.at_s if after is not None else time.perf_counter(),
        )
        return self._record(order, seen_by_client, began_at, samples=samples, drained=drained)

    def _record(
        self, order: Order, seen: Observation, began_at: datetime, *, samples: list[Sample], drained: bool | None
    ) -> tuple[RunRecord, pl.DataFrame]:
        run = self.run
        table = rows.table(seen.replies, run.run_index, order.warmup_requests)
        summary = summarize(table, run.slo, from_due=isinstance(run.level, OpenLoad))
        tokens = sum(reply.output_tokens or reply.events for reply in seen.replies)
        dispatched = table.filter(pl.col("sent_s").is_not_null())
        client = ClientHealth(
            processes=seen.processes,
            cpu_s=seen.cpu_s,
            cpu_per_token_s=seen.cpu_s / tokens if tokens else None,
            dispatch_delay_s=distribution((dispatched["sent_s"] - dispatched["due_s"]).to_numpy()),
            loop_lag_s=distribution(seen.lags),
        )
        engine = counters(samples)
        verdict = judge(
            Evidence(
                workload=run.workload,
                level=run.level,
                slo=run.slo,
                requests=table,
                summary=summary,
                client=client,
                busiest_share=seen.busiest_share,
                engine=engine,
                engine_restarted=restarted(samples),
                drained=drained,
                stopped=seen.stopped,
            )
        )
        return (
            RunRecord(
                run_index=run.run_index,
                workload=run.workload,
                level=run.level,
                level_label=run.level.label,
                slo=run.slo,
                started_at=began_at,
                started_s=seen.start - self.origin,
                seed=run.seed,
                summary=summary,
                slo_met=slo_met(summary, run.slo),
                client=client,
                engine=engine,
                verdict=verdict,
            ),
            table,
        )
