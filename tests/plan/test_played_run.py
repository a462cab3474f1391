"""Played runs beside a judge that shares only a step's duration with them, and beside formulas by hand."""

from dataclasses import replace
from typing import Any

import pytest

from node_models import deployment
from plan.virtual_engine import Judged, VirtualEngine
from tokenpeak.predict.demand import Demand, arrivals, lengths
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.physics import request_s, step_time_s
from tokenpeak.predict.played_run import PlayedRun, Rank, play
from tokenpeak.predict.prediction import most_per_s

H100 = deployment(
    "meta-llama/Llama-3.1-8B-Instruct",
    "NVIDIA H100 80GB HBM3",
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    schedules_ahead=True,
)
SMALL_BATCH = replace(H100, max_num_batched_tokens=2048, schedules_ahead=False)
FEW_SEATS = replace(H100, max_num_seqs=8)
V100 = deployment(
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "Tesla V100-PCIE-32GB",
    tensor_parallel=4,
    dtype="float16",
    eager=True,
    v1=False,
    max_num_seqs=128,
    max_num_batched_tokens=16384,
)


def demand(prompt: float, output: float, **options: Any) -> Demand:
    usual: dict[str, Any] = {
        "longest_tokens": None,
        "longest_input_tokens": None,
        "requests": 40,
        "warmup_requests": 0,
        "duration_s": None,
        "concurrency": 16,
        "rate_per_s": None,
    }
    return Demand(input_tokens=prompt, output_tokens=output, **{**usual, **options})


def played(engine: Deployment, offer: Demand) -> PlayedRun:
    return play(Rank(deployment=engine, seats=engine.max_num_seqs, chunked_prefill=engine.v1), offer)


def judged(engine: Deployment, offer: Demand, **options: Any) -> Judged:
    shapes = lengths(offer)
    drawn = [next(shapes) for _ in range((offer.requests or 0) + offer.warmup_requests)]
    usual = {"shape": drawn.__getitem__, "requests": offer.requests, "warmup": offer.warmup_requests}
    load = {"concurrency": offer.concurrency, "chunked": engine.v1}
    return VirtualEngine(engine, **{**usual, **load, **options}).run()


@pytest.mark.parametrize("engine", [H100, SMALL_BATCH, FEW_SEATS, V100], ids=["ahead", "small", "seats", "v0"])
@pytest.mark.parametrize(
    "offer",
    [
        demand(1000, 60),
        demand(1000, 60, warmup_requests=16),
        demand(3000, 20, concurrency=5),
        demand(128, 64, concurrency=30, requests=75, warmup_requests=30),
        demand(200, 40, input_spread=0.5, output_spread=0.8, requests=120),
    ],
    ids=["burst", "warm", "chunks", "waves", "spread"],
)
def test_a_closed_loop_is_what_the_engine_s_scheduler_makes_of_it(engine: Deployment, offer: Demand) -> None:
    """Throughput, TTFT and TPOT of whole requests are those of the simulated engine's own scheduler."""
    found, judge = played(engine, offer), judged(engine, offer)

    assert pytest.approx(judge.output_tok_per_s, rel=0.02) == found.output_tok_per_s
    assert pytest.approx(judge.ttft_s, rel=0.04) == found.ttft_s["mean"]
    assert pytest.approx(judge.tpot_s, rel=0.03) == found.tpot_s["mean"]


@pytest.mark.parametrize("rate", [2.0, 10.0, 16.0])
def test_an_open_loop_is_what_the_engine_s_scheduler_makes_of_it(rate: float) -> None:
    """The same for requests that come by chance, up to near saturation."""
    offer = demand(1000, 60, rate_per_s=rate, concurrency=None, requests=120)
    found, judge = (
        played(SMALL_BATCH, offer),
        judged(SMALL_BATCH, offer, due_s=arrivals(offer, 120), concurrency=0),
    )

    assert pytest.approx(judge.output_tok_per_s, rel=0.02) == found.output_tok_per_s
    assert pytest.approx(judge.ttft_s, rel=0.06) == found.ttft_s["mean"]


def test_a_machine_that_answers_one_request_in_the_time_is_played_too() -> None:
    """Its throughput is that of the one: nothing is divided by the gaps between requests, of which there are none."""
    whole = played(H100, demand(1000, 60, concurrency=1))
    cut = played(H100, demand(1000, 60, concurrency=1, duration_s=0.001))

    assert 60 / cut.latency_s["mean"] == pytest.approx(cut.output_tok_per_s)
    assert whole.output_tok_per_s == pytest.approx(cut.output_tok_per_s, rel=0.02)


def test_prompts_sent_together_wait_for_one_another() -> None:
    """By hand: sixteen prompts of one batch each are prefilled one after the other, once the API server has them."""
    engine = replace(SMALL_BATCH, max_num_batched_tokens=1000)
    offer = demand(1000, 1, requests=16)
    each_s = step_time_s(engine, prefill_tokens=1000).total_s

    assert request_s(1000) < each_s
    assert pytest.approx(request_s(1000) + 8.5 * each_s, rel=1e-6) == played(engine, offer).ttft_s["mean"]


def test_prompts_that_come_by_chance_wait_as_in_any_queue() -> None:
    """By hand: with one prompt a step it is a queue of constant service; it waits ρ ÷ (2 (1 - ρ)) services (M/D/1)."""
    engine = replace(SMALL_BATCH, max_num_batched_tokens=1000)
    service_s, load = step_time_s(engine, prefill_tokens=1000).total_s, 0.6
    offer = demand(1000, 1, rate_per_s=load / service_s, concurrency=None, requests=500)
    wait_s = played(engine, offer).ttft_s["mean"] - request_s(1000) - service_s

    assert pytest.approx(load / (2 * (1 - load)) * service_s, rel=0.2) == wait_s


@pytest.mark.parametrize(("prompt", "output"), [(1000, 250), (128, 64), (3000, 30), (600, 8), (200, 1)])
@pytest.mark.parametrize("engine", [SMALL_BATCH, FEW_SEATS, V100], ids=["small", "seats", "v0"])
def test_the_most_that_is_served_is_what_many_requests_get(engine: Deployment, prompt: int, output: int) -> None:
    """The highest rate is the rate of a long closed loop with every seat in use."""
    seats = min(64, engine.max_num_seqs)
    engine = replace(engine, max_num_seqs=seats)
    offer = demand(prompt, output, concurrency=2 * seats, requests=40 * seats)
    served = played(engine, replace(offer, output_spread=0.1)).output_tok_per_s / output

    assert pytest.approx(served, rel=0.15) == most_per_s(
        Rank(deployment=engine, seats=seats, chunked_prefill=engine.v1), offer
    )
