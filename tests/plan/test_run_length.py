"""Levels at a fixed rate whose runs are too short, and what the plan says of them."""

from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.results.closed_window import short_closed_loops
from tokenpeak.results.steady_state import short_runs
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec


def spec_of(*levels: dict[str, object]) -> SweepSpec:
    """A spec with these levels of one workload under an SLO."""
    workload = {"kind": "synthetic", "name": "short", "input_tokens": 128, "output_tokens": 64}
    raw = {"axes": {"max_num_seqs": [8]}, "workloads": [{"workload": workload, "levels": list(levels)}]}
    return parse_spec({**raw, "slo": {"ttft_p95_ms": 500}}, Path("spec.yml"))


@pytest.mark.parametrize(
    ("level", "least", "most"),
    [
        ({"rate_per_s": 8, "requests": 24}, 1250, 1350),
        ({"rate_per_s": 8, "requests": 24, "arrivals": "constant"}, 600, 700),
        ({"rate_per_s": 8, "requests": 24, "arrivals": "gamma", "burstiness": 0.5}, 1850, 2000),
        ({"rate_per_s": 8, "duration_s": 60}, 1250, 1350),
    ],
)
def test_short_run_is_named_with_what_would_do(level: dict[str, object], least: int, most: int) -> None:
    """The hint says the level, its requests and how many would do: more for bursts, fewer for even arrivals."""
    (short,) = short_runs(spec_of(level))

    assert least <= short.needed <= most
    assert f"requests: {short.needed} (" in short.words
    assert "rate=8/s" in short.words


@pytest.mark.parametrize("name", sorted(path.stem for path in paths.SWEEPS.glob("*.yml")))
def test_shipped_sweeps_have_long_enough_runs(name: str) -> None:
    """No sweep of the repository asks for a run at a fixed rate that could not say whether the engine holds it."""
    assert [] == short_runs(read_spec(name))


PUBLISHED = {"a100x8-llama70b", "v100-deepseek-r1-32b"}
"""Loads as others published them, which are short."""


@pytest.mark.parametrize("name", sorted({path.stem for path in paths.SWEEPS.glob("*.yml")} - PUBLISHED))
def test_shipped_sweeps_have_a_steady_window(name: str) -> None:
    """No closed loop of the repository's own sweeps is shorter than its throughput and its SLO need."""
    assert [] == short_closed_loops(read_spec(name))
