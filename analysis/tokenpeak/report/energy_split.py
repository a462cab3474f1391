"""Energy of prefill against decode: J per prompt token and per output token, by least squares over runs of one config.

The model of a run's energy is a · prompt tokens + b · output tokens, and each run counts by its relative error. A fit
holds runs at one load level only: at another level the boards' idle power is shared by more or fewer tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tokenpeak.ranking.intervals import t_critical
from tokenpeak.report.blocks import Sentence, code, note
from tokenpeak.report.energy import rounded

FEWEST_RUNS = 4
LEAST_CONTRAST = 1.5
"""Between the runs' prompt tokens per output token: the largest over the smallest."""


@dataclass(frozen=True, kw_only=True)
class EnergySplit:
    """J per token of each kind, with half the width of its 95% interval."""

    prompt_j: float
    prompt_half_j: float
    output_j: float
    output_half_j: float
    runs: int


def energy_split(runs: Sequence[tuple[float, float, float]]) -> EnergySplit | str:
    """The split of runs, each its energy in J, prompt and output tokens; else why they do not give it."""
    known = [run for run in runs if min(run) > 0]
    if len(known) < FEWEST_RUNS:
        return f"it takes {FEWEST_RUNS} runs at one load level with a measured energy, and has {len(known)}"
    energy, prompt, output = np.array(known, dtype=float).T
    contrast = float(np.max(prompt / output) / np.min(prompt / output))
    if contrast < LEAST_CONTRAST:
        return "all its runs have about as many prompt tokens for each output token"
    shares = np.column_stack([prompt, output]) / energy[:, None]
    found, *_ = np.linalg.lstsq(shares, np.ones(len(known)), rcond=None)
    freedom = len(known) - 2
    variance = float(np.sum((shares @ found - 1) ** 2)) / freedom
    halves = t_critical(freedom) * np.sqrt(variance * np.diag(np.linalg.inv(shares.T @ shares)))
    if np.any(found <= halves):
        return "its runs vary too much to separate the two"
    return EnergySplit(
        prompt_j=float(found[0]),
        prompt_half_j=float(halves[0]),
        output_j=float(found[1]),
        output_half_j=float(halves[1]),
        runs=len(known),
    )


def split_words(runs: pl.DataFrame, label: str) -> list[Sentence]:
    """What a prompt token and an output token take in this config's measured runs, at the level with most workloads.

    Empty where its runs do not give it.
    """
    levels = (
        runs.filter(
            pl.col("label") == label,
            pl.col("energy_j").is_not_null(),
            pl.col("energy_source") != "estimated_tdp",
            pl.col("verdict") != "invalid",
        )
        .group_by("level_label", maintain_order=True)
        .agg(workloads=pl.col("workload_name").n_unique(), rows=pl.struct("energy_j", "input_tokens", "output_tokens"))
        .sort("workloads", descending=True, maintain_order=True)
    )
    rows = levels["rows"][0].to_list() if levels.height else []
    found = energy_split(
        [(row["energy_j"], row["input_tokens"], row["output_tokens"]) for row in rows if None not in row.values()]
    )
    if isinstance(found, str):
        return []
    prompt, output = (
        f"{rounded(value, value - half, value + half)} J ({rounded(value - half, value - half, value + half)} to "
        f"{rounded(value + half, value - half, value + half)})"
        for value, half in ((found.prompt_j, found.prompt_half_j), (found.output_j, found.output_half_j))
    )
    return [
        note(
            "By least squares over ",
            f"{found.runs} runs of ",
            code(label),
            f" at {levels['level_label'][0]}, a prompt token takes {prompt} and an output token {output}. "
            "Idle power is in both.",
        )
    ]
