"""One run of a job: drain the engine, offer the load, read what came, judge it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import polars as pl
from pydantic import NonNegativeInt

from tokenpeak.errors import LoadError
from tokenpeak.loadgen import request_rows
from tokenpeak.loadgen.arrivals import staged_caps, staged_timetable, timetable
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.datasets import read_trace
from tokenpeak.loadgen.http.metrics_page import Scraper, counters, restarted
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.prompts import Vocabulary, make
from tokenpeak.loadgen.rate.probing import SaturationLoad, search_rate
from tokenpeak.loadgen.workers.messages import LoadProgress
from tokenpeak.loadgen.workers.pool import Offered, WorkerPool, from_due
from tokenpeak.records import ClientHealth, LoadHostHealth, MaxRate, NetworkHealth, RunRecord
from tokenpeak.results.request_metrics import slo_met
from tokenpeak.results.run_summary import distribution, summarize, turn_summaries
from tokenpeak.results.steady_state import percentile_intervals, steady_state_of
from tokenpeak.results.verdict import RunEvidence, judge
from tokenpeak.spec.declaration import Declaration
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import (
    ClosedLoad,
    ConversationWorkload,
    LoadLevel,
    MaxRateLoad,
    OpenLoad,
    ReplayLoad,
    StagedLoad,
    TraceWorkload,
    Workload,
)


class JobRun(Declaration):
    """One workload at one load level."""

    run_index: NonNegativeInt
    workload: Workload
    level: LoadLevel
    slo: Slo = Slo()
    seed: int = 0


class Status(Declaration):
    """How far a job is; what the progress file holds."""

    run_index: int
    level_label: str
    phase: str
    requests_done: int
    requests_total: int | None
    output_tok_per_s: float | None = None
    ttft_s_p50: float | None = None


OnStatus = Callable[[Status], None]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all runs of a job share. `origin_s` is the trial's zero on the `perf_counter` clock."""

    server: Server
    model: str
    vocabulary: Vocabulary
    scraper: Scraper
    origin_s: float
    run_deadline_s: float
    stall_s: float
    drain_s: float

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
            found = search_rate(level, self.offer, origin_s=self.setting.origin_s)
            return self._record(found.best, level.max_rate_under, found.max_rate), found.table
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
            return tuple(entry.due_s for entry in read_trace(workload)[: level.requests])
        return None

    def assignment(self, level: LoadLevel) -> LoadAssignment:
        """What the workers are to send."""
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
        prompts = make(run.workload, setting.model, setting.vocabulary, number=requests, seed=run.seed, salt=salt)
        if isinstance(run.workload, ConversationWorkload):
            endpoint = "chat"
            if due is not None:
                # A timetable's rate counts requests; every further turn follows its conversation's own pace.
                due = due[:: run.workload.turns]
        else:
            endpoint = run.workload.endpoint
        return LoadAssignment(
            target=setting.server.target(endpoint),
            templates=prompts.templates,
            conversations=prompts.conversations,
            conversation_options=prompts.conversation_options,
            think_time_s=prompts.think_time_s,
            resalt=prompts.resalt,
            salt_ids=setting.vocabulary.ids if endpoint == "completions" else (),
            due_s=due,
            caps=caps,
            max_in_flight=getattr(level, "max_concurrency", None),
            requests=requests,
            duration_s=duration,
            warmup_requests=level.warmup_requests,
            stall_s=setting.stall_s,
            deadline_s=setting.run_deadline_s,
        )

    def offer(self, level: LoadLevel) -> Offered:
        """Wait until the engine is idle, then offer a load."""
        scraper = self.setting.scraper
        self._status("draining", level)
        drained = scraper.drained(self.setting.drain_s)
        assignment = self.assignment(level)
        self._status("loading", level)
        ticks: list[tuple[float, float]] = []

        def on_progress(progress: LoadProgress) -> None:
            ticks.append((time.perf_counter(), float(progress.packets)))
            (begin, before), (end, after) = ticks[max(0, len(ticks) - 4)], ticks[-1]
            rate = max(0.0, after - before) / (end - begin) if end > begin else None
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
            table=request_rows.table(seen.replies, self.run.run_index, assignment.warmup_requests),
            began_at=began_at,
        )

    def _record(self, offered: Offered, slo: Slo, max_rate: MaxRate | None = None) -> RunRecord:
        run, seen, table = self.run, offered.seen, offered.table
        summary = summarize(table, slo, from_due=from_due(offered.level))
        tokens = sum(reply.output_tokens or reply.events for reply in seen.replies)
        dispatched = table.filter(pl.col("sent_s").is_not_null())
        client = ClientHealth(
            processes=seen.processes,
            cpu_s=seen.cpu_s,
            cpu_per_token_s=seen.cpu_s / tokens if tokens else None,
            dispatch_delay_s=distribution((dispatched["sent_s"] - dispatched["due_s"]).to_numpy()),
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
            failure_messages=messages,
            engine=engine,
            verdict=verdict,
        )
