"""Runs of a load job: drain the engine, offer the load, read what came, judge it, write it."""

import asyncio
import json
import os
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenpeak.errors import LoadError
from tokenpeak.files import replacing, write_atomically
from tokenpeak.loadgen.adapters import NoAdapterError, adapters_of, require_adapters
from tokenpeak.loadgen.arrivals import staged_caps, staged_timetable, timetable
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.chats import first_turns
from tokenpeak.loadgen.http.metrics_page import Scraper, counters, restarted
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.job import OUTCOME, JobOutcome, JobRun, LoadJob, OnStatus, Status, job_server
from tokenpeak.loadgen.prompts import make
from tokenpeak.loadgen.rate.probing import SaturationLoad, search_rate
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.loadgen.vocabulary import Vocabulary, learn
from tokenpeak.loadgen.workers.messages import LoadProgress
from tokenpeak.loadgen.workers.pool import (
    Offered,
    WorkerPool,
    from_due,
    most_streams,
    processes_borne,
    processes_of_share,
)
from tokenpeak.loadgen.workers.remote import HostLostError, RemoteWorkerPool
from tokenpeak.records import (
    REQUEST_COLUMNS,
    ClientHealth,
    LoadHostHealth,
    MaxRate,
    NetworkHealth,
    Reason,
    RunRecord,
    Verdict,
)
from tokenpeak.results.closed_window import held_concurrency
from tokenpeak.results.request_metrics import slo_met
from tokenpeak.results.run_summary import adapter_summaries, distribution, summarize, turn_summaries
from tokenpeak.results.steady_state import percentile_intervals, steady_state_of
from tokenpeak.results.verdict import RunEvidence, judge
from tokenpeak.spec.load import ClosedLoad, LoadLevel, MaxRateLoad, OpenLoad, ReplayLoad, StagedLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ConversationWorkload, PoolingWorkload, TraceWorkload

DRAIN_S = 60.0
"""The longest wait for requests of before to leave the engine."""
_DTYPES: dict[str, pl.DataType] = {
    "text": pl.String(),
    "int32": pl.Int32(),
    "int64": pl.Int64(),
    "float64": pl.Float64(),
    "list of int32": pl.List(pl.Int32()),
}
REQUEST_SCHEMA = {name: _DTYPES[column.kind] for name, column in REQUEST_COLUMNS.items()}


def request_table(replies: Iterable[Reply], run_index: int, warmup_requests: int) -> pl.DataFrame:
    """One row per request, in order of its index; the first `warmup_requests` are of phase `warmup`."""
    replies = sorted(replies, key=lambda reply: reply.index)
    plain = [name for name in REQUEST_SCHEMA if name not in ("run_index", "request_index", "phase", "event_times_us")]
    columns: dict[str, object] = {
        "run_index": [run_index] * len(replies),
        "request_index": [reply.index for reply in replies],
        "phase": ["warmup" if reply.index < warmup_requests else "measured" for reply in replies],
        "event_times_us": [np.frombuffer(reply.event_times_us, dtype=np.int32) for reply in replies],
    }
    columns |= {name: [getattr(reply, name) for reply in replies] for name in plain}
    return pl.DataFrame({name: columns[name] for name in REQUEST_SCHEMA}, schema=REQUEST_SCHEMA)


def dispatch_delays(requests: pl.DataFrame, cap: int | None, workers: int) -> NDArray[np.float64]:
    """How late each request was sent: after it was due, and after its worker's share of a cap had room for it."""
    ended = pl.coalesce("last_token_s", "first_byte_s", "sent_s")
    sent = requests.filter(pl.col("sent_s").is_not_null()).with_columns(ended=ended).sort("sent_s")
    delays = [np.zeros(0)]
    for worker in range(workers):
        own = sent.filter(pl.col("request_index") % workers == worker)
        ready = own["due_s"].to_numpy().copy()
        if cap is not None:
            share = max(1, cap // workers + (worker < cap % workers))
            # So many of those before it must have ended that no more than the share are in flight with it.
            ready[share:] = np.maximum(ready[share:], np.sort(own["ended"].to_numpy())[: max(0, len(ready) - share)])
        delays.append(own["sent_s"].to_numpy() - ready)
    return np.concatenate(delays)


def _write_requests(path: Path, tables: list[pl.DataFrame]) -> None:
    """All runs' requests in one compressed file, written whole or not at all."""
    everything = pl.concat(tables) if tables else pl.DataFrame(schema=REQUEST_SCHEMA)
    with replacing(path) as part:
        everything.write_parquet(part, compression="zstd", compression_level=9)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Setting that all runs of a job share. `origin_s` is the trial's zero on the `perf_counter` clock."""

    job: LoadJob
    server: Server
    vocabulary: Vocabulary
    scraper: Scraper
    origin_s: float

    def origin_unix_s(self) -> float:
        """The trial's zero as wall-clock time."""
        return time.time() - (time.perf_counter() - self.origin_s)


class Run:
    """A run under way."""

    def __init__(self, run: JobRun, setting: Setting, workers: WorkerPool, show: OnStatus) -> None:
        self.run = run
        self.setting = setting
        self.workers = workers
        self.show = show
        self._offers = 0

    def carry_out(self) -> tuple[RunRecord, pl.DataFrame]:
        """The run's record and its requests."""
        level = self.run.level
        if isinstance(level, MaxRateLoad):
            search = search_rate(level, self.offer, origin_s=self.setting.origin_s)
            return self._record(search.best, level.max_rate_under, search.max_rate), search.table
        offered = self.offer(level)
        return self._record(offered, self.run.slo), offered.table

    def _status(self, phase: str, level: LoadLevel, ended: int = 0, **rates: float | None) -> None:
        total = None if level.requests is None else level.requests + level.warmup_requests
        self.show(
            Status(
                run_index=self.run.run_index,
                level_label=self.run.level.label,
                phase=phase,
                requests_done=ended,
                requests_total=total,
                **rates,
            )
        )

    def _due(self, level: LoadLevel) -> tuple[float, ...] | None:
        workload = self.run.workload
        if isinstance(level, OpenLoad):
            return timetable(level, self.run.seed)
        if isinstance(level, StagedLoad) and level.open:
            return staged_timetable(level, self.run.seed)
        if isinstance(level, ReplayLoad):
            if not isinstance(workload, TraceWorkload):
                raise LoadError(
                    f"Only a trace can be replayed; workload {workload.name!r} is of kind {workload.kind!r}."
                )
            return tuple(entry.due_s for entry in read_trace(workload).entries[: level.requests])
        return None

    def assignment(self, level: LoadLevel) -> LoadAssignment:
        """The requests for the workers."""
        run, setting = self.run, self.setting
        due = self._due(level)
        caps: tuple[tuple[float, int], ...] = ()
        duration = level.duration_s
        requests = None if level.requests is None else level.requests + level.warmup_requests
        if isinstance(level, SaturationLoad):
            caps = level.caps
        elif isinstance(level, ClosedLoad):
            caps = ((0.0, level.concurrency),)
        elif isinstance(level, StagedLoad) and not level.open:
            caps = staged_caps(level.stages)
            duration = sum(stage.duration_s for stage in level.stages)
        if due is not None:
            requests, duration = len(due), None
        # Salts must differ between runs and sweeps that share a server.
        salt = f"{int(setting.origin_unix_s() * 1e3) % 2**32:08x}{run.run_index:02x}{self._offers:02x}"
        self._offers += 1
        prompts = make(run.workload, setting.job.model, setting.vocabulary, number=requests, seed=run.seed, salt=salt)
        endpoint = "chat" if isinstance(run.workload, ConversationWorkload) else run.workload.endpoint
        if due is not None and prompts.conversations:
            due = first_turns(due, prompts.conversations)
        return LoadAssignment(
            target=setting.server.target(endpoint),
            templates=prompts.templates,
            conversations=prompts.conversations,
            conversation_options=prompts.conversation_options,
            think_time_s=prompts.think_time_s,
            adapters=adapters_of(run.workload, prompts, requests, warmup=level.warmup_requests, seed=run.seed),
            model=setting.job.model,
            resalt=prompts.resalt,
            salt_ids=prompts.salt_ids,
            due_s=due,
            caps=caps,
            max_in_flight=getattr(level, "max_concurrency", None),
            requests=requests,
            duration_s=duration,
            warmup_requests=level.warmup_requests,
            events_for_usage=setting.job.events_for_usage,
            results=prompts.results,
            stall_s=setting.job.stall_s,
            deadline_s=setting.job.run_deadline_s,
        )

    def offer(self, level: LoadLevel) -> Offered:
        """Wait until the engine is idle, then offer a load."""
        scraper = self.setting.scraper
        self._status("draining", level)
        drained = scraper.drained(DRAIN_S)
        assignment = self.assignment(level)
        self._status("loading", level)
        ticks: list[tuple[float, float]] = []

        def on_progress(progress: LoadProgress) -> None:
            ticks.append((time.perf_counter(), float(progress.packets)))
            (begin, before), (end, after) = ticks[max(0, len(ticks) - 4)], ticks[-1]
            rate = max(0.0, after - before) / (end - begin) if end > begin else None
            rate = rate if assignment.results is None else None
            self._status("loading", level, progress.ended, output_tok_per_s=rate, ttft_s_p50=progress.ttft_s_p50)

        began_at = datetime.now(UTC)
        before = scraper.sample()
        seen = self.workers.run(assignment, on_progress)
        after = scraper.sample()
        self._status("reading", level, len(seen.replies))
        samples = scraper.between(
            before.at_s if before is not None else seen.start,
            after.at_s if after is not None else time.perf_counter(),
        )
        return Offered(
            level=level,
            seen=seen,
            samples=samples,
            drained=drained,
            table=request_table(seen.replies, self.run.run_index, assignment.warmup_requests),
            began_at=began_at,
            due=assignment.requests if assignment.duration_s is None else None,
        )

    def _record(self, offered: Offered, slo: Slo, max_rate: MaxRate | None = None) -> RunRecord:
        run, seen, table = self.run, offered.seen, offered.table
        summary = summarize(
            table,
            slo,
            from_due=from_due(offered.level),
            concurrency=held_concurrency(offered.level, run.workload),
            generates=not isinstance(run.workload, PoolingWorkload),
        )
        tokens = sum(reply.output_tokens or reply.events for reply in seen.replies)
        client = ClientHealth(
            processes=seen.processes,
            cpu_s=seen.cpu_s,
            cpu_per_token_s=seen.cpu_s / tokens if tokens else None,
            dispatch_delay_s=distribution(
                dispatch_delays(table, getattr(offered.level, "max_concurrency", None), seen.processes)
            ),
            loop_lag_s=distribution(seen.lags),
            hosts=tuple(LoadHostHealth.model_validate(asdict(share)) for share in seen.hosts),
            network=NetworkHealth(
                segments=seen.segments[0] + seen.segments[2],
                segments_lost=seen.segments[1] + seen.segments[3],
                outages_s=seen.outages,
            ),
        )
        messages: dict[str, str] = {}
        for reply in seen.replies:
            if reply.error is not None:
                messages.setdefault(reply.error, reply.detail)
        engine = counters(offered.samples)
        state = steady_state_of(table) if isinstance(offered.level, OpenLoad) else None
        started_s = seen.start - self.setting.origin_s
        due_s = table.filter(pl.col("phase") == "measured")["due_s"].to_numpy()
        verdict = judge(
            RunEvidence(
                workload=run.workload,
                level=offered.level,
                slo=slo,
                requests=table,
                summary=summary,
                client=client,
                busiest_share=seen.busiest_share,
                engine=engine,
                engine_restarted=restarted(offered.samples),
                drained=offered.drained,
                stopped=seen.stopped,
                due=offered.due,
            )
        )
        return RunRecord(
            run_index=run.run_index,
            workload=run.workload,
            level=run.level,
            level_label=run.level.label,
            slo=slo,
            started_at=offered.began_at,
            started_s=started_s,
            measured_from_s=started_s + float(due_s.min()) if due_s.size else None,
            seed=run.seed,
            summary=summary,
            steady_state=state,
            percentile_intervals=percentile_intervals(table, slo, state) if state else {},
            slo_met=slo_met(summary, slo),
            client=client,
            max_rate=max_rate,
            turns=turn_summaries(table, from_due=from_due(offered.level)),
            adapters=adapter_summaries(table, summary, from_due=from_due(offered.level)),
            failure_messages=messages,
            engine=engine,
            verdict=verdict,
        )


def run_job(job: LoadJob, on_status: OnStatus = lambda _: None) -> tuple[RunRecord, ...]:
    """Carry out every run of a job and write its files; raises LoadError when no load can be offered at all."""
    job.output_dir.mkdir(parents=True, exist_ok=True)
    server = job_server(job)

    def show(status: Status) -> None:
        if job.progress_file is not None:
            write_atomically(job.progress_file, status.model_dump_json(), durable=False)
        on_status(status)

    try:
        require_adapters(server, [run.workload for run in job.runs])
    except NoAdapterError as missing:
        write_atomically(job.output_dir / OUTCOME, JobOutcome(refused=str(missing)).model_dump_json())
        raise
    # The two clocks are read together: wall-clock time names the zero, the monotonic clock does the measuring.
    now_unix, now = time.time(), time.perf_counter()
    origin = now - (now_unix - (job.trial_started_at_unix_s or now_unix))
    metrics_url = job.metrics_url or f"{server.root}/metrics"
    scraper = Scraper(metrics_url, server.headers, verify=server.trust(metrics_url))
    setting = Setting(
        job=job,
        server=server,
        vocabulary=asyncio.run(_learn(server, job.model)),
        scraper=scraper,
        origin_s=origin,
    )
    records: list[RunRecord] = []
    outcome = JobOutcome()
    tables: list[pl.DataFrame] = []
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
                left = len(job.runs) - len(records)
                if len(records) == 1 and job.early_stop and (reason := job.early_stop.reason(record, left)):
                    outcome = JobOutcome(left_out=reason)
                    break
    except HostLostError as lost:
        outcome = JobOutcome(lost_host=str(lost))
        raise
    finally:
        scraper.stop()
        _write_requests(job.output_dir / "requests.parquet", tables)
        write_atomically(job.output_dir / "metrics.json", json.dumps(vars(scraper.series(origin))))
        write_atomically(
            job.output_dir / "runs.json", json.dumps([record.model_dump(mode="json") for record in records])
        )
        write_atomically(job.output_dir / OUTCOME, outcome.model_dump_json())
    return tuple(records)


def _workers(job: LoadJob) -> WorkerPool:
    """The workers: processes of this machine, or of each load host."""
    share = processes_of_share(most_streams(run.level for run in job.runs), max(1, len(job.hosts)))

    def processes(cores: int) -> int:
        return job.processes or min(share, processes_borne(cores))

    return RemoteWorkerPool(job.hosts, processes) if job.hosts else WorkerPool(processes(os.cpu_count() or 2))


def _without_host(record: RunRecord, lost: LoadError) -> RunRecord:
    """A run that went on without one of its load hosts: it is invalid, never silently a smaller one."""
    reason = Reason(code="load_host_lost", text=f"{lost} What is shown is what the other hosts had offered until then.")
    others = tuple(each for each in record.verdict.reasons if each.code != "stopped")
    return record.model_copy(update={"verdict": Verdict(status="invalid", reasons=(reason, *others))})


async def _learn(server: Server, model: str) -> Vocabulary:
    async with server.client() as client:
        return await learn(client, model)
