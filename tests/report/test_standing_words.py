"""Words of a standing do not say more than was shown."""

import polars as pl
import pytest

from tokenpeak.report.blocks.metric_columns import slo_word


@pytest.mark.parametrize(
    ("met", "confidence", "word"),
    [
        (True, 0.998, "held"),
        (True, 0.95, "held"),
        (True, 0.6321, "held, not proven"),
        (True, None, "held"),
        (False, None, "broken"),
        (None, None, None),
    ],
)
def test_an_slo_held_by_chance_is_not_said_to_hold(
    met: bool | None, confidence: float | None, word: str | None
) -> None:
    """Below 95% confidence the word differs; where nothing was counted, or looked at, none is claimed."""
    frame = pl.DataFrame({"met": [met], "sure": [confidence]}, schema={"met": pl.Boolean, "sure": pl.Float64})

    assert [word] == frame.select(slo_word(pl.col("met"), pl.col("sure"))).to_series().to_list()
