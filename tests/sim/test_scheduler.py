"""Continuous batching: what each step computes, under V1's rules and V0's."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpeak.sim.scheduler import BlockPool, Scheduler, SchedulerLimits, Step
from tokenpeak.sim.sequence import Sequence


def make_scheduler(blocks: int = 1000, *, caching: bool = True, **limits: Any) -> Scheduler:
    usual = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "block_size": 16,
        "chunked_prefill": True,
        "prefill_first": False,
    }
    return Scheduler(SchedulerLimits(**{**usual, **limits}), BlockPool(blocks, caching=caching))


def make_sequence(prompt: int | list[int], output: int = 4, seed: int = 0) -> Sequence:
    tokens = [(seed * 1000 + place) % 5000 for place in range(prompt)] if isinstance(prompt, int) else prompt
    return Sequence(
        tokens,
        max_tokens=output,
        stop_after=None,
        seed=seed,
        vocabulary=1000,
        arrived_s=0.0,
        on_tokens=lambda *_: None,
    )


def carry_out(scheduler: Scheduler, step: Step) -> None:
    """What the engine does at a step's end, without clock and clients."""
    for sequence, tokens in step.scheduled:
        if sequence.decoding:
            new, reason = sequence.generate(1)
            scheduler.computed(sequence, len(new))
        else:
            scheduler.computed(sequence, tokens)
            if sequence.computed < len(sequence.tokens):
                continue
            sequence.decoding = True
            _, reason = sequence.generate(1)
        if reason:
            scheduler.finish(sequence)


def run(scheduler: Scheduler, limit: int = 10_000) -> list[Step]:
    """All steps until nothing is left."""
    steps = []
    while (step := scheduler.schedule()) is not None:
        carry_out(scheduler, step)
        steps.append(step)
        assert len(steps) < limit, "no progress"
    return steps


def test_a_long_prompt_is_computed_in_chunks() -> None:
    """150 tokens at 64 a step are three steps of prefill."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(150, output=1))

    assert [64, 64, 22] == [step.prefill_tokens for step in run(scheduler)]


def test_v0_stalls_decoding_while_prompts_wait() -> None:
    """Without chunked prefill, a step is either whole prompts or decoding."""
    scheduler = make_scheduler(prefill_first=True, chunked_prefill=False)
    scheduler.add(make_sequence(10, output=5))
    first = scheduler.schedule()
    assert first is not None
    carry_out(scheduler, first)
    scheduler.add(make_sequence(40, seed=1))
    second = scheduler.schedule()

    assert second is not None
    assert (0, 40) == (second.decode_sequences, second.prefill_tokens)


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(1, 120), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=12),
    blocks=st.integers(11, 60),
    prefill_first=st.booleans(),
    caching=st.booleans(),
)
def test_whatever_comes_everything_ends(
    prompts: list[tuple[int, int, int]], blocks: int, prefill_first: bool, caching: bool
) -> None:
    """Any load ends with every token generated, every block free and no step beyond its limits."""
    scheduler = make_scheduler(blocks=blocks, caching=caching, prefill_first=prefill_first, max_num_batched_tokens=160)
    sequences = [make_sequence(length, output=output, seed=seed) for length, output, seed in prompts]
    for sequence in sequences:
        scheduler.add(sequence)
    steps = run(scheduler)

    assert [output for _, output, _ in prompts] == [sequence.output_tokens for sequence in sequences]
    assert blocks == scheduler.pool.free
    assert all(step.tokens <= 160 and len(step.scheduled) <= 8 for step in steps)
