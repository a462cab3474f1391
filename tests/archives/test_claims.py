"""Every published claim has its verdict, and another one when the data that it rests on are changed."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from published_names import A100, CLAIM_COUNT, H200, PRESETS, T4, V100

from tokenpeak import paths
from tokenpeak.checks.claims import Claim, judge, read_claims
from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import Verdict
from tokenpeak.store.frames import Frames

CLAIMS: dict[str, tuple[str, Claim]] = {
    claim.id: (archive, claim)
    for archive in (V100, A100, H200, T4, PRESETS)
    for claim in read_claims(paths.ARCHIVES / archive / "claims.yml")
}


def evidence(published: Frames, archive: str) -> Evidence:
    """The frames of one archive."""
    own = {
        name: getattr(published, name).filter(pl.col("sweep_id") == archive)
        for name in ("nodes", "configs", "trials", "runs")
    }
    return Evidence(spec=published.specs[archive], **own)


Doctor = Callable[[Evidence, Claim], tuple[Evidence, Claim]]


def runs(**columns: pl.Expr) -> Doctor:
    """Change columns of the runs."""
    return lambda seen, claim: (replace(seen, runs=seen.runs.with_columns(**columns)), claim)


def trials(**columns: pl.Expr) -> Doctor:
    """Change columns of the trials."""
    return lambda seen, claim: (replace(seen, trials=seen.trials.with_columns(**columns)), claim)


def given(**parameters: object) -> Doctor:
    """Change what the source gives beside its figures."""
    return lambda seen, claim: (
        seen,
        claim.model_copy(update={"parameters": {**claim.parameters, **parameters}}),
    )


def where(condition: pl.Expr, column: str, value: object) -> pl.Expr:
    """The column with another value where the condition holds."""
    return pl.when(condition).then(pl.lit(value)).otherwise(pl.col(column))


def without_eager(seen: Evidence, claim: Claim) -> tuple[Evidence, Claim]:
    """As if every V100 launch had run with graphs."""
    flags = pl.col("flags").str.replace('"enforce_eager":true', '"enforce_eager":false', literal=True)
    return replace(seen, configs=seen.configs.with_columns(flags)), claim


def one_more_pair(seen: Evidence, claim: Claim) -> tuple[Evidence, Claim]:
    """As if the published 8192 row at 0.80 and 32 sequences had been run at 32768 too, and been faster."""
    row = seen.runs.filter(
        axis_max_model_len="8192", axis_gpu_memory_utilization="0.8", axis_max_num_seqs="32"
    ).with_columns(axis_max_model_len=pl.lit("32768"), request_output_tok_per_s_mean=pl.lit(23.0))
    return replace(seen, runs=pl.concat([seen.runs, row])), claim


SPEED = "request_output_tok_per_s_mean"
WINNER = (pl.col("axis_gpu_memory_utilization") == "0.85") & (pl.col("axis_max_model_len") == "32768")
WORST = pl.col(SPEED) < 20.7
TWO_GPUS = pl.col("node").is_in(["gpu-medium", "mi210x2", "H100X2"])
SEVERAL_GPUS = TWO_GPUS | pl.col("node").is_in(["gpu-large", "gpu-xlarge"])
EDITED = pl.col("axis_max_num_batched_tokens") == "65536"
PIPELINE = pl.col("axis_parallelism") == "pipeline"

VERDICTS: dict[str, tuple[Verdict, Doctor, Verdict]] = {
    "C1": ("contradicted", runs(**{SPEED: where(WINNER, SPEED, 700.0)}), "supported"),
    "C2": ("contradicted", given(stated_unit="J/token"), "supported"),
    "C3": ("contradicted", runs(energy_j_per_output_tok=pl.col("energy_j_per_output_tok") / 1019), "supported"),
    "C4": ("contradicted", runs(**{SPEED: where(WORST, SPEED, 20.84)}), "supported"),
    "C5": ("undecided", one_more_pair, "supported"),
    "C6": ("not_supported", runs(**{SPEED: where(WINNER, SPEED, 22.4)}), "supported"),
    "C7": ("supported", runs(**{SPEED: where(WINNER, SPEED, 22.4)}), "contradicted"),
    "C8": ("contradicted", given(stated_bytes=42.9e9), "supported"),
    "C9": ("contradicted", runs(tpot_s_mean=pl.col("itl_s_p50")), "supported"),
    "C10": (
        "contradicted",
        runs(
            itl_s_mean=1 / pl.col("output_tok_per_s"),
            output_tokens=pl.col("requests_ok") * 4000,
        ),
        "supported",
    ),
    "C11": (
        "contradicted",
        runs(
            **{
                f"ttft_s_{name}": where(
                    pl.col("axis_max_num_batched_tokens") == "65536", f"ttft_s_{name}", 20.0 + index / 7
                )
                for index, name in enumerate(("mean", "p25", "p50", "p75", "p99"))
            }
        ),
        "supported",
    ),
    "C12": (
        "supported",
        trials(objective=where(pl.col("config_name") == "moderate", "objective", 2.5)),
        "contradicted",
    ),
    "C13": (
        "supported",
        runs(ttft_s_p99=where(pl.col("config_name") == "moderate", "ttft_s_p99", 0.93)),
        "contradicted",
    ),
    "C14": (
        "supported",
        trials(objective=where(pl.col("config_name") == "moderate", "objective", 4.0)),
        "contradicted",
    ),
    "C15": ("contradicted", given(stated_minimum=8.9, stated_devices=["NVIDIA H100 PCIe", "NVIDIA L40S"]), "supported"),
    "C16": ("not_supported", given(tokens_per_sequence=840), "supported"),
    "C17": (
        "not_supported",
        given(quality={"float16": -2, "awq-4bit": 0, "gptq-4bit": -3, "gguf-llama.cpp": -5}),
        "supported",
    ),
    "C18": ("supported", runs(output_tok_per_s=where(PIPELINE & TWO_GPUS, "output_tok_per_s", 700.0)), "contradicted"),
    "C19": ("contradicted", runs(output_tok_per_s=where(SEVERAL_GPUS, "output_tok_per_s", 50.0)), "supported"),
    "C20": ("contradicted", runs(**{SPEED: where(pl.col("axis_model") == "qwen-1.5b", SPEED, 280.0)}), "supported"),
    "C21": (
        "contradicted",
        runs(
            output_tok_per_s=where(pl.col("axis_max_model_len") == "128000", "output_tok_per_s", 100.0),
        ),
        "supported",
    ),
    "C22": (
        "supported",
        runs(output_tok_per_s=where(pl.col("concurrency") == 1, "output_tok_per_s", 60.0)),
        "contradicted",
    ),
    "C23": ("contradicted", given(stated="launch_overhead"), "supported"),
    "C24": ("contradicted", runs(**{SPEED: where(WORST, SPEED, 20.84)}), "supported"),
    "C25": ("undecided", without_eager, "contradicted"),
    "C26": ("contradicted", given(stated_requests_per_min=24), "supported"),
    "C27": ("contradicted", given(stated_bytes=4.2e9), "supported"),
}
"""Claim → its verdict, a change of what it rests on, and the verdict on that."""


def test_every_claim_is_there() -> None:
    """Every claim by its number, each once, each with why it matters."""
    assert {f"C{number}" for number in range(1, CLAIM_COUNT + 1)} == set(CLAIMS) == set(VERDICTS)
    assert all(claim.matters and claim.source for _, claim in CLAIMS.values())


@pytest.mark.parametrize("claim_id", VERDICTS)
def test_verdicts_follow_the_data(claim_id: str, published: Frames) -> None:
    """The published data give the verdict, with arithmetic and the figure that holds; another figure, another one."""
    archive, claim = CLAIMS[claim_id]
    before, doctor, after = VERDICTS[claim_id]
    own = evidence(published, archive)
    outcome = judge(claim, own).outcome
    seen, changed = doctor(own, claim)

    assert (before, after) == (outcome.verdict, judge(changed, seen).outcome.verdict)
    assert before != after
    assert any(character.isdigit() for character in " ".join(outcome.computation))
    assert outcome.corrected or outcome.verdict == "supported"
