import math

import pytest

from tokenpeak.predict.demand import demand
from tokenpeak.spec.lengths import LengthDistribution
from tokenpeak.spec.load import ClosedLoad, OpenLoad
from tokenpeak.spec.workload import ConversationWorkload, DatasetWorkload, SyntheticWorkload


def test_takes_the_mean_and_the_most_of_a_distribution() -> None:
    """A table's weights give the mean; its largest entry is the most."""
    lengths = LengthDistribution(distribution="table", table=((100, 1), (300, 3)))
    asked = demand(
        SyntheticWorkload(name="s", input_tokens=lengths, output_tokens=10), ClosedLoad(concurrency=1, requests=1)
    )

    assert 250.0 == asked.input_tokens
    assert 310 == asked.longest_tokens
    assert pytest.approx(math.sqrt(7500) / 250) == asked.input_spread


def test_finds_a_conversation_s_history_in_the_prefix_cache() -> None:
    """Each turn resends what the engine has seen: most of the input is a prefix hit."""
    asked = demand(
        ConversationWorkload(
            name="c", starters=10, starter_tokens=3500, turns=5, turn_input_tokens=40, output_tokens=830
        ),
        ClosedLoad(concurrency=8, requests=40),
    )

    assert pytest.approx(5280) == asked.input_tokens
    assert asked.prefix_hit_rate > 0.8
    assert 7020 + 830 == asked.longest_tokens


def test_estimates_the_follow_up_of_every_turn() -> None:
    """Three words are four tokens, as in a fixed prompt."""
    asked = demand(
        ConversationWorkload(
            name="c", starters=10, starter_tokens=100, turns=2, turn_text="Why is that?", output_tokens=10
        ),
        ClosedLoad(concurrency=8, requests=40),
    )

    assert pytest.approx((104 + 118) / 2) == asked.input_tokens
    assert 118 + 10 == asked.longest_tokens


def test_limits_the_requests_in_flight_of_an_open_load_by_their_number() -> None:
    """Without a cap all requests of the run may be in flight at once."""
    workload = DatasetWorkload(name="d", path="x.json")

    assert 24 == demand(workload, OpenLoad(rate_per_s=4, requests=20, warmup_requests=4)).concurrency
    assert 6 == demand(workload, OpenLoad(rate_per_s=4, requests=20, max_concurrency=6)).concurrency
    assert demand(workload, OpenLoad(rate_per_s=4, duration_s=60)).concurrency is None
