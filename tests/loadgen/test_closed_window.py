"""Throughput of a closed loop: over its steady window, against timetables and engines whose true rate is known."""

from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadgen.closed_engine import lengths, moments_of, played
from loadgen.replies import reply
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.run import request_table
from tokenpeak.metrics import with_derived
from tokenpeak.records import RunSummary
from tokenpeak.results.closed_window import closed_loop_requests, held_concurrency, short_closed_loops, waves_of
from tokenpeak.results.run_summary import summarize
from tokenpeak.spec.load import ClosedLoad, OpenLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.spec.workload import ConversationWorkload, SyntheticWorkload

SLOTS = 8


def summary_of(replies: list[Reply], concurrency: int | None = SLOTS, warmup_requests: int = 0) -> RunSummary:
    slo = Slo(ttft_p50_ms=1e6)
    return summarize(request_table(replies, 0, warmup_requests), slo, from_due=False, concurrency=concurrency)


def whole(summary: RunSummary) -> float:
    """Output tokens per second over the whole load, by hand."""
    assert summary.output_tokens is not None
    assert summary.duration_s is not None
    return summary.output_tokens / summary.duration_s


def timetable(per_slot: int, answer: int = 20) -> list[Reply]:
    """Slots that each serve so many answers, one after another: a token each 0.05 s, the first after 0.05 s.

    Slot k begins 0.1 k s late, so that ramp and drain take 0.7 s each.
    """
    answers = [
        reply(
            0,
            start,
            first_token_s=start + 0.05,
            last_token_s=start + 0.05 * answer,
            output_tokens=answer,
            events=answer,
            event_times_us=array("i", [50_000] * (answer - 1)).tobytes(),
        )
        for slot in range(SLOTS)
        for start in (0.1 * slot + 0.05 * answer * number for number in range(per_slot))
    ]
    return [
        replace(each, index=index) for index, each in enumerate(sorted(answers, key=lambda each: each.sent_s or 0.0))
    ]


def test_ramp_and_drain_are_no_throughput() -> None:
    """Of eight slots that each give 20 tok/s it is 160 within 1%; over the whole load it was 11% to 23% less."""
    short, long = summary_of(timetable(3)), summary_of(timetable(6))

    for summary, loss in ((short, 0.7 / 3.7), (long, 0.7 / 6.7)):
        assert 160 == pytest.approx(summary.output_tok_per_s, rel=0.01)
        assert 160 * (1 - loss) == pytest.approx(whole(summary))
        assert 160 / 20 == pytest.approx(summary.request_per_s, rel=0.01)
        assert 160 / 20 * 10 == pytest.approx(summary.input_tok_per_s, rel=0.01)
        assert 160 / 20 * 30 == pytest.approx(summary.total_tok_per_s, rel=0.01)
        assert summary.request_per_s == summary.goodput_request_per_s
    assert (1, 4) == (short.steady_waves, long.steady_waves)
    # The ninth request to end is the first slot's second.
    assert (2.0, 6.0) == pytest.approx((long.steady_from_s, long.steady_to_s))


def test_old_figure_stays_under_its_own_name() -> None:
    """The rate over the whole load is a metric of every run, by two figures that every archive has."""
    summary = summary_of(timetable(3))
    derived = with_derived({"output_tokens": summary.output_tokens, "duration_s": summary.duration_s})

    assert whole(summary) == derived["whole_output_tok_per_s"]
    assert whole(summary) == pytest.approx(summary_of(timetable(3), concurrency=None).output_tok_per_s)


TRUE_WAVES = 60


@pytest.mark.parametrize(
    ("kind", "waves", "within"),
    [
        ("equal", 3, 0.003),
        ("equal", 3.5, 0.003),
        ("equal", 4.6, 0.003),
        ("equal", 10, 0.003),
        ("even", 4, 0.03),
        ("even", 10, 0.01),
        ("wide", 6.3, 0.02),
        ("wide", 10, 0.02),
    ],
)
@pytest.mark.parametrize("prompt", [256, 1024])
def test_played_engine(kind: str, waves: float, within: float, prompt: int) -> None:
    """The mean of four runs of an engine is its rate in the middle of a run of sixty waves."""
    slots = 32
    long = played(slots, lengths(kind, TRUE_WAVES * slots, 99), prompt=prompt)
    ends = np.sort([each.last_token_s or 0.0 for each in long])
    begin, end = float(ends[10 * slots]), float(ends[(TRUE_WAVES - 2) * slots])
    tokens = np.concatenate([moments_of(each) for each in long])
    truth = np.sum((tokens > begin) & (tokens <= end)) / (end - begin)

    runs = [
        summary_of(played(slots, lengths(kind, int(waves * slots), seed), prompt=prompt), slots) for seed in range(4)
    ]

    assert truth == pytest.approx(np.mean([run.output_tok_per_s for run in runs]), rel=within)


def test_window_by_numpy_alone() -> None:
    """From the rows alone: it begins at the end after N others, holds whole waves, and all slots are full in it."""
    replies = played(16, lengths("wide", 120, 3), prompt=512)
    summary = summary_of(replies, 16)
    ends = np.sort([each.last_token_s or 0.0 for each in replies])
    last_sent = max(each.sent_s or 0.0 for each in replies)
    drains = ends[np.searchsorted(ends, last_sent, side="right")]
    count = 16
    while ends[count + 16] <= drains:
        count += 16
    tokens = np.concatenate([moments_of(each) for each in replies])
    inside = np.sum((tokens > ends[16]) & (tokens <= ends[count] + 1e-9))
    starts = np.array([each.sent_s or 0.0 for each in replies])
    closes = np.array([each.last_token_s or 0.0 for each in replies])
    middle = np.linspace(ends[16], ends[count], 500)[1:-1]

    assert (ends[16], ends[count]) == pytest.approx((summary.steady_from_s, summary.steady_to_s))
    assert inside / (ends[count] - ends[16]) == pytest.approx(summary.output_tok_per_s, rel=1e-3)
    assert {16} == {int(np.sum((starts <= at) & (closes > at))) for at in middle}


def test_warmup_fills_the_loop() -> None:
    """Warm-up is the ramp: the window begins with the first measured request, and tokens of both count in it."""
    summary = summary_of(timetable(6), warmup_requests=2 * SLOTS)
    begun = summary_of(timetable(6), warmup_requests=SLOTS)

    assert 160 == pytest.approx(summary.output_tok_per_s, rel=0.01)
    assert 160 == pytest.approx(begun.output_tok_per_s, rel=0.01)
    assert (0.0, 4) == (pytest.approx(summary.steady_from_s, abs=0.2), begun.steady_waves)


@pytest.mark.parametrize("requests", [1, SLOTS, 2 * SLOTS, 2 * SLOTS + 6])
def test_short_run_keeps_the_whole_load(requests: int) -> None:
    """Without one wave between ramp and drain the rate is over the whole load, and no window is said."""
    summary = summary_of(timetable(6)[:requests])

    assert summary.steady_waves is None
    assert summary.steady_from_s is None
    assert whole(summary) == pytest.approx(summary.output_tok_per_s)


def test_failed_requests_are_in_no_rate() -> None:
    """A slot whose requests fail gives nothing: 140 tok/s are left of 160."""
    replies = [
        replace(each, error="reset", last_token_s=None) if round((each.sent_s or 0.0) % 1.0 * 10) == 3 else each
        for each in timetable(6)
    ]

    assert 140 == pytest.approx(summary_of(replies, SLOTS).output_tok_per_s, rel=0.02)


def test_what_holds_a_number_in_flight() -> None:
    """A closed loop does, unless its users think between their turns."""
    plain = SyntheticWorkload(name="a", input_tokens=1, output_tokens=1)
    chat = ConversationWorkload(
        name="b", starters=1, starter_tokens=1, turns=2, turn_input_tokens=1, output_tokens=1, think_time_s=1
    )
    closed = ClosedLoad(concurrency=4, requests=8)

    assert 4 == held_concurrency(closed, plain)
    assert held_concurrency(closed, chat) is None
    assert 4 == held_concurrency(closed, chat.model_copy(update={"think_time_s": 0.0}))
    assert held_concurrency(OpenLoad(rate_per_s=1, requests=1), plain) is None


@pytest.mark.parametrize("warmup", [0, 3, SLOTS, 2 * SLOTS, 3 * SLOTS])
def test_plan_says_what_a_run_has(warmup: int) -> None:
    """The waves that the plan counts are those of the run, and so many requests as it asks for are the fewest."""
    level = ClosedLoad(concurrency=SLOTS, requests=1, warmup_requests=warmup)
    needed = closed_loop_requests(level)
    for requests in (needed - 1, needed, needed + SLOTS):
        summary = summary_of(timetable(10)[: requests + warmup], warmup_requests=warmup)

        assert (summary.steady_waves or 0) == waves_of(requests, level)
    assert (1, 2) == (waves_of(needed - 1, level), waves_of(needed, level))


def spec_of(slo: dict[str, float], **level: object) -> SweepSpec:
    """A spec with one closed loop."""
    workload = {"kind": "synthetic", "name": "short", "input_tokens": 128, "output_tokens": 64}
    raw = {"axes": {"max_num_seqs": [8]}, "workloads": [{"workload": workload, "levels": [level]}]}
    return parse_spec({**raw, "slo": slo}, Path("spec.yml"))


def test_plan_warns_of_few_waves_and_few_requests() -> None:
    """One sentence for each of the two, with the requests that mend both; none for what is long enough or by time."""
    few = short_closed_loops(spec_of({"ttft_p99_ms": 500}, concurrency=64, requests=160))
    waves, percentile = few

    assert "160 requests leave no waves of 64" in waves
    assert "the SLO's p99" in percentile
    assert all(each.endswith("Set requests: 299") for each in few)
    assert [] == short_closed_loops(spec_of({"ttft_p99_ms": 500}, concurrency=64, requests=299))
    assert [] == short_closed_loops(spec_of({}, concurrency=64, requests=256))
    assert [] == short_closed_loops(spec_of({"ttft_p99_ms": 500}, concurrency=64, duration_s=1))
    assert 1 == len(short_closed_loops(spec_of({}, concurrency=64, requests=255)))
