"""Words of a standing do not say more than was shown."""

import polars as pl
import pytest

from tokenpeak.report.blocks.block import Column, table
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


def test_no_chance_is_shown_as_none() -> None:
    """A p-value that rounds to nothing is below the least shown; a difference of nothing stays 0."""
    chance = Column(key="p", title="p", kind="number", digits=3, least=0.001)
    shown = table(pl.DataFrame({"p": [0.0, 0.0004, 0.001, 0.25, None]}), [chance], name="p", title="p")
    plain = table(
        pl.DataFrame({"p": [0.0]}), [Column(key="p", title="p", kind="number", digits=3)], name="p", title="p"
    )

    assert ["<0.001", "<0.001", "0.001", "0.250", "–"] == [row[0]["text"] for row in shown.rows]
    assert "0.000" == plain.rows[0][0]["text"]
