"""Figures by which launches under one load are compared, by the kind of load."""

CLOSED = ("output_tok_per_s", "ttft_s_p95", "tpot_s_p95")
OPEN = ("ttft_s_p95", "tpot_s_p95")
"""Of an open load the throughput is what was offered, with any engine that keeps up."""
SEARCHED = ("max_rate_per_s",)
"""Of a search for the highest rate: its other figures are those of whichever rate it ended at."""


def figures_of(level_kind: str, level_label: str) -> tuple[str, ...]:
    """The metrics' columns of a load, by its `level_kind` and `level_label` of the frame of runs."""
    if level_label == "max_rate":
        return SEARCHED
    return OPEN if level_kind == "open" else CLOSED
