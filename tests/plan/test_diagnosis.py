from typing import Any

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.records import (
    Config,
    Distribution,
    EngineCounters,
    ModelName,
    RunRecord,
    Series,
)
from tokenpeak.results.hindsight import diagnose

NONE = Distribution(n=0)


def run(*, itl: Distribution = NONE, preemptions: int | None = None) -> RunRecord:
    made = trial_record(sweep_spec())[0].runs[0]
    summary = made.summary.model_copy(update={"duration_s": 10.0, "requests_sent": 64, "itl_s": itl})
    engine = EngineCounters(preemptions=preemptions)
    return made.model_copy(update={"measured_from_s": 10.0, "summary": summary, "engine": engine})


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
