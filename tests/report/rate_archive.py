"""An archive of queues of known capacity: rates that were steady, overloaded and too short to say, and searches."""

import heapq
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from archive_factory import make_archive
from loadgen.replies import reply
from tokenpeak.loadgen import request_rows
from tokenpeak.loadgen.arrivals import timetable
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.rate.probing import search_rate
from tokenpeak.loadgen.workers.messages import LoadObservation
from tokenpeak.loadgen.workers.observation import Offered
from tokenpeak.records import RunRecord, Verdict
from tokenpeak.results.request_metrics import slo_met
from tokenpeak.results.run_summary import summarize
from tokenpeak.results.steady_state import percentile_intervals, steady_state_of
from tokenpeak.results.verdict import RunEvidence, judge
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ClosedLoad, LoadLevel, MaxRateLoad, OpenLoad
from tokenpeak.store.archive import Archive

LIMITS = Slo(ttft_p95_ms=500, tpot_p95_ms=50)
RATES = {4.0: 60, 8.0: 1000, 16.0: 1000}
"""Requests at each rate: the first are too few to say anything."""
SEARCH = MaxRateLoad(max_rate_under=LIMITS, budget_s=120)
TOKENS = 32


class SlotQueue:
    """So many slots, each of which serves a request for a time of this mean, a third of which is its deviation."""

    def __init__(self, slots: int, mean_s: float) -> None:
        self.slots, self.mean_s = slots, mean_s
        self.random = np.random.default_rng(slots)

    def __call__(self, level: LoadLevel) -> Offered:
        """Everything that a run at this level would have seen."""
        due = list(timetable(level, 1)) if isinstance(level, OpenLoad) else []
        free = np.zeros(self.slots)
        in_flight: list[float] = []
        replies: list[Reply] = []
        while len(replies) < (len(due) or level.requests or 10**6):
            number = len(replies)
            if due:
                moment = due[number]
            else:
                assert isinstance(level, ClosedLoad)
                moment = heapq.heappop(in_flight) if number >= level.concurrency else 0.0
                if moment > (level.duration_s or 100.0):
                    break
            slot = int(free.argmin())
            waited = max(moment, float(free[slot]))
            took = float(self.random.gamma(9.0, self.mean_s / 9.0))
            free[slot] = waited + took
            heapq.heappush(in_flight, waited + took)
            gaps = np.full(TOKENS - 1, took * 0.9 / (TOKENS - 1) * 1e6).astype(np.uint32).tobytes()
            first = waited + took * 0.1
            replies.append(
                reply(
                    number,
                    moment,
                    first_token_s=first,
                    last_token_s=waited + took,
                    output_tokens=TOKENS,
                    events=TOKENS,
                    event_times_us=gaps,
                )
            )
        seen = LoadObservation(
            replies=tuple(replies),
            lags=(),
            start=0.0,
            wall_s=float(free.max()),
            cpu_s=0.0,
            busiest_share=0.0,
            processes=1,
            stopped=None,
        )
        table = request_rows.table(replies, 0, level.warmup_requests)
        return Offered(level=level, seen=seen, samples=[], drained=True, table=table, began_at=datetime.now(UTC))


def rate_archive(path: Path, queues: dict[int, SlotQueue]) -> Archive:
    """An archive of one L4 with a config `max_num_seqs` for each queue, run at RATES and searched."""
    archive = make_archive(path, gpus=["NVIDIA L4"], axes={"max_num_seqs": list(queues)}, seconds=3)
    sweep = json.loads((archive.path / "sweep.json").read_text())
    levels = sweep["spec"]["workloads"][0]["levels"]
    levels[1:] = [_level(rate).model_dump(mode="json") for rate in RATES] + [SEARCH.model_dump(mode="json")]
    (archive.path / "sweep.json").write_text(json.dumps(sweep))
    for file in sorted((archive.path / "trials").glob("*.json")):
        trial = json.loads(file.read_text())
        queue = queues[trial["config"]["flags"]["max_num_seqs"]]
        pattern = RunRecord.model_validate_json(json.dumps(trial["runs"][1]))
        runs = [_run(pattern, number, _level(rate), queue) for number, rate in enumerate(RATES, 1)]
        found = search_rate(SEARCH, queue, origin_s=0.0)
        searched = _record(pattern, len(runs) + 1, SEARCH, found.best)
        runs.append(searched.model_copy(update={"max_rate": found.max_rate}))
        trial["runs"][1:] = [json.loads(run.model_dump_json()) for run in runs]
        file.write_text(json.dumps(trial))
    return archive


def _level(rate: float) -> OpenLoad:
    return OpenLoad(rate_per_s=rate, requests=RATES[rate])


def _run(pattern: RunRecord, number: int, level: OpenLoad, queue: SlotQueue) -> RunRecord:
    return _record(pattern, number, level, queue(level))


def _record(pattern: RunRecord, number: int, level: LoadLevel, offered: Offered) -> RunRecord:
    summary = summarize(offered.table, LIMITS, from_due=True)
    state = steady_state_of(offered.table)
    evidence = RunEvidence(
        workload=pattern.workload,  # type: ignore[arg-type]
        level=offered.level,
        slo=LIMITS,
        requests=offered.table,
        summary=summary,
        client=pattern.client,
        busiest_share=0.0,
    )
    verdict: Verdict = judge(evidence)
    update = {
        "run_index": number,
        "level": level,
        "level_label": level.label,
        "slo": LIMITS,
        "summary": summary,
        "steady_state": state,
        "percentile_intervals": percentile_intervals(offered.table, LIMITS, state),
        "slo_met": slo_met(summary, LIMITS),
        "verdict": verdict,
    }
    return pattern.model_copy(update=update)
