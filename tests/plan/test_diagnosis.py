from datetime import UTC, datetime
from typing import Any

import pytest

from tokenpeak.records import (
    ClientHealth,
    Config,
    Distribution,
    EngineCounters,
    ModelName,
    RunRecord,
    RunSummary,
    Series,
    Verdict,
)
from tokenpeak.results.diagnosis import diagnose
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ClosedLoad, SyntheticWorkload

NONE = Distribution(n=0)


def run(*, itl: Distribution = NONE, preemptions: int | None = None) -> RunRecord:
    return RunRecord(
        run_index=0,
        workload=SyntheticWorkload(name="short", input_tokens=100, output_tokens=50),
        level=ClosedLoad(concurrency=32, requests=64),
        level_label="concurrency=32",
        slo=Slo(),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        started_s=4.0,
        measured_from_s=10.0,
        seed=0,
        summary=RunSummary(
            duration_s=10.0,
            requests_sent=64,
            requests_ok=64,
            requests_failed=0,
            input_tokens=6400,
            output_tokens=3200,
            request_output_tok_per_s=NONE,
            ttft_s=NONE,
            tpot_s=NONE,
            itl_s=itl,
            latency_s=NONE,
        ),
        client=ClientHealth(dispatch_delay_s=NONE, loop_lag_s=NONE),
        engine=EngineCounters(preemptions=preemptions),
        verdict=Verdict(status="valid"),
    )


def series(running: float, waiting: float, kv_usage: float) -> Series:
    """Ten samples inside the run, and five of its warm-up that must not count."""
    return Series(
        t_s=tuple(float(t) for t in range(5, 20)),
        columns={
            "requests_running": (0.0,) * 5 + (running,) * 10,
            "requests_waiting": (99.0,) * 5 + (waiting,) * 10,
            "kv_cache_usage": (1.0,) * 5 + (kv_usage,) * 10,
        },
    )


def config(**flags: Any) -> Config:
    return Config(config_id="0" * 12, name="c", model=ModelName(name="m", served_name="m"), flags=flags)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (series(60, 0, 0.99), ["kv_cache_full"]),
        (series(64, 9, 0.30), ["queueing_with_kv_free"]),
        (series(20, 9, 0.30), ["prompts_queue"]),
        (series(5, 0, 0.10), ["running_low"]),
        (series(40, 0, 0.50), []),
    ],
)
def test_reads_the_series_of_the_run(seen: Series, expected: list[str]) -> None:
    """Full KV cache, a queue before free KV cache, and too little load are distinguished."""
    assert expected == [advice.rule for advice in diagnose(config(max_num_seqs=64), run(), seen)]


def test_counts_preemptions() -> None:
    """Preempted sequences are named with their number."""
    (advice,) = diagnose(config(max_num_seqs=64), run(preemptions=7), series(40, 0, 0.5))

    assert ("preemptions", "7 preemptions in 64 requests") == (advice.rule, advice.evidence)


def test_sees_prefill_starving_decode() -> None:
    """A p99 gap between tokens far above the median one is a stall."""
    (advice,) = diagnose(config(max_num_seqs=64), run(itl=Distribution(n=99, p50=0.01, p99=0.2)), series(40, 0, 0.5))

    assert "prefill_starves_decode" == advice.rule
    assert "20 times" in advice.evidence
