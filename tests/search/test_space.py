"""A plan's configs as points, with what the predictor expects of them."""

import numpy as np
import pytest
from landscape_factory import plan_of

from tokenpeak.search.space import space_of


@pytest.mark.parametrize(("metric", "predicts"), [("output_tok_per_s", True), ("power_w", False)])
def test_predictor_says_nothing_of_power(metric: str, *, predicts: bool) -> None:
    """Much throughput is not little power: where the prediction says nothing of an objective, nothing is expected."""
    assert predicts == bool(np.isfinite(space_of(plan_of("V100"), metric=metric).expected).any())
