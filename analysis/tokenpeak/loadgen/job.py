"""Load job: all runs of one launch. Reads a job, offers each run's load, writes what was observed.

Written into `output_dir`: `runs.json` (a list of RunRecord; energy is the caller's to add), `requests.parquet`,
`metrics.json` (the 1 Hz series of the engine's /metrics on the trial's clock) and `outcome.json` (a JobOutcome).
`progress_file` is rewritten about once a second.
"""

import asyncio
import json
import os
import time
from contextlib import closing
from pathlib import Path

import polars as pl
from pydantic import Field, PositiveFloat, PositiveInt

from tokenpeak.atomic import write_atomically
from tokenpeak.errors import LoadError
from tokenpeak.loadgen import request_rows
from tokenpeak.loadgen.http.metrics_page import Scraper
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.prompts import Vocabulary, learn
from tokenpeak.loadgen.run import JobRun, OnStatus, Run, Setting, Status
from tokenpeak.loadgen.workers.pool import WorkerPool, most_streams, processes_borne, processes_of_share
from tokenpeak.loadgen.workers.remote_pool import HostLostError, LoadHost, RemoteWorkerPool
from tokenpeak.ranking.objective import metric_value
from tokenpeak.records import Reason, RunRecord, Verdict
from tokenpeak.spec.declaration import Declaration
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.quality import QualityJob

OUTCOME = "outcome.json"
QUALITY, ANSWERS = "quality.json", "quality.json.zst"
"""A QualityMeasurement, and the QualityPasses that it came to, of a job that measures answers."""


class EarlyStop(Declaration):
    """The early-stop threshold: what the first run must reach for the others to be made."""

    metric: str
    threshold: float
    lower_is_better: bool = False

    def value_beyond(self, record: RunRecord) -> float | None:
        """The run's value where it is well measured and beyond the threshold, else None."""
        value = metric_value(record, self.metric, EnergyFactors())
        if value is None or record.verdict.status != "valid":
            return None
        return value if (value > self.threshold if self.lower_is_better else value < self.threshold) else None


class JobOutcome(Declaration):
    """Why a job has fewer runs than it was given; both None when it has all."""

    lost_host: str | None = None
    """Which load host was lost, and why."""
    left_out: str | None = None
    """Why only the first run was made."""


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
    metrics_url: str | None = None
    """None: /metrics beside the API; a server without one leaves the engine's side out."""
    progress_file: Path | None = None
    processes: PositiveInt | None = None
    """None: as many as the highest load level needs."""
    hosts: tuple[LoadHost, ...] = ()
    """The machines that offer the load together; empty: this one does."""
    run_deadline_s: PositiveFloat = 900
    stall_s: PositiveFloat = 120
    drain_s: PositiveFloat = 60
    early_stop: EarlyStop | None = None
    """None: every run is made."""
    quality: QualityJob | None = None
    """What is measured of the engine's answers after the runs; None: nothing."""


def read_job(path: Path) -> LoadJob:
    """The job in a JSON file; raises LoadError saying which key is wrong."""
    try:
        return LoadJob.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} is not a load job: {error}") from error


def read_outcome(output_dir: Path) -> JobOutcome:
    """How the job that wrote into this folder ended; raises ValueError where the file is none."""
    path = output_dir / OUTCOME
    return JobOutcome.model_validate_json(path.read_bytes()) if path.is_file() else JobOutcome()


def run_job(job: LoadJob, on_status: OnStatus = lambda _: None) -> tuple[RunRecord, ...]:
    """Carry out every run of a job and write its files; raises LoadError when no load can be offered at all."""
    job.output_dir.mkdir(parents=True, exist_ok=True)
    server = job_server(job)

    def show(status: Status) -> None:
        if job.progress_file is not None:
            write_atomically(job.progress_file, status.model_dump_json(), durable=False)
        on_status(status)

    # The two clocks are read together: wall-clock time names the zero, the monotonic clock does the measuring.
    now_unix, now = time.time(), time.perf_counter()
    origin = now - (now_unix - (job.trial_started_at_unix_s or now_unix))
    metrics_url = job.metrics_url or f"{server.root}/metrics"
    scraper = Scraper(metrics_url, server.headers, verify=server.trust(metrics_url))
    vocabulary = asyncio.run(_learn(server, job.model))
    records: list[RunRecord] = []
    outcome = JobOutcome()
    tables: list[pl.DataFrame] = []
    setting = Setting(
        server=server,
        model=job.model,
        vocabulary=vocabulary,
        scraper=scraper,
        origin_s=origin,
        run_deadline_s=job.run_deadline_s,
        stall_s=job.stall_s,
        drain_s=job.drain_s,
    )
    try:
        scraper.start()
        with closing(_workers(job)) as workers:
            for run in job.runs:
                record, table = Run(run, setting, workers, show).carry_out()
                lost = workers.lost
                records.append(record if lost is None else _without_host(record, lost))
                tables.append(table)
                if lost is not None:
                    raise lost
                if run is job.runs[0] and (why := _early_stop_reason(job, record)):
                    outcome = JobOutcome(left_out=why)
                    break
    except HostLostError as lost:
        outcome = JobOutcome(lost_host=str(lost))
        raise
    finally:
        scraper.stop()
        request_rows.write(job.output_dir / "requests.parquet", tables)
        write_atomically(job.output_dir / "metrics.json", json.dumps(vars(scraper.series(origin))))
        write_atomically(
            job.output_dir / "runs.json", json.dumps([record.model_dump(mode="json") for record in records])
        )
        write_atomically(job.output_dir / OUTCOME, outcome.model_dump_json())
    return tuple(records)


def _early_stop_reason(job: LoadJob, first: RunRecord) -> str | None:
    """Why the runs after the first are not worth making; None when they are, or there are none."""
    stop = job.early_stop
    value = stop.value_beyond(first) if stop is not None and len(job.runs) > 1 else None
    if stop is None or value is None:
        return None
    left = len(job.runs) - 1
    beyond = "above" if stop.lower_is_better else "below"
    return (
        f"{left} further run{'s were' if left > 1 else ' was'} left out: {stop.metric} of {first.workload.name} at "
        f"{first.level_label} was {value:.4g}, {beyond} the early-stop threshold of {stop.threshold:.4g}, so this "
        "config is far behind the best so far."
    )


def _workers(job: LoadJob) -> WorkerPool:
    """The workers: processes of this machine, or of each load host."""
    share = processes_of_share(most_streams(run.level for run in job.runs), max(1, len(job.hosts)))

    def processes(cores: int) -> int:
        return job.processes or min(share, processes_borne(cores))

    return RemoteWorkerPool(job.hosts, processes) if job.hosts else WorkerPool(processes(os.cpu_count() or 2))


def _without_host(record: RunRecord, lost: LoadError) -> RunRecord:
    """A run that went on without one of its load hosts: it is invalid, never silently a smaller one."""
    reason = Reason(code="load_host_lost", text=f"{lost} What is shown is what the other hosts had offered until then.")
    others = tuple(found for found in record.verdict.reasons if found.code != "stopped")
    return record.model_copy(update={"verdict": Verdict(status="invalid", reasons=(reason, *others))})


def job_server(job: LoadJob) -> Server:
    """The server that the job is for; raises LoadError where its key cannot be read."""
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
    )


async def _learn(server: Server, model: str) -> Vocabulary:
    async with server.client() as client:
        return await learn(client, model)
