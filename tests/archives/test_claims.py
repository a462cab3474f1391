"""Every published claim has its verdict, and another one when the data that it rests on are changed."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from published_names import A100, CLAIM_COUNT, H200, PRESETS, T4, V100

from tokenpeak import paths
from tokenpeak.checks.catalogue import Claim, judge, read_claims
from tokenpeak.checks.evidence import Evidence, Verdict
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


def at_higher_rates(seen: Evidence, claim: Claim) -> tuple[Evidence, Claim]:
    """As if the runs that broke the SLO had been at 3.5 requests a second, with first tokens after a second."""
    broken = pl.col("rate_per_s") == 2.5
    changed = seen.runs.with_columns(
        rate_per_s=where(broken, "rate_per_s", 3.5), ttft_s_p99=where(broken, "ttft_s_p99", 1.0)
    )
    return replace(seen, runs=changed), claim


SPEED = "request_output_tok_per_s_mean"
WINNER = (pl.col("axis_gpu_memory_utilization") == "0.85") & (pl.col("axis_max_model_len") == "32768")
PIPELINE = pl.col("axis_parallelism") == "pipeline"
TWO_GPUS = pl.col("node").is_in(["gpu-medium", "mi210x2", "H100X2"])

VERDICTS: dict[str, Verdict] = {
    **dict.fromkeys(("C1", "C2", "C3", "C4", "C8", "C9", "C10", "C11", "C15", "C19", "C20", "C21"), "contradicted"),
    **dict.fromkeys(("C23", "C24", "C26", "C27", "C28", "C29", "C35"), "contradicted"),
    **dict.fromkeys(("C7", "C12", "C13", "C14", "C18", "C22", "C33"), "supported"),
    **dict.fromkeys(("C6", "C16", "C17", "C30", "C34"), "not_supported"),
    **dict.fromkeys(("C5", "C25", "C31", "C32"), "undecided"),
}
DOCTORED: dict[str, tuple[Doctor, Verdict]] = {
    "C2": (given(stated_unit="J/token"), "supported"),
    "C3": (runs(energy_j_per_output_tok=pl.col("energy_j_per_output_tok") / 1019), "supported"),
    "C5": (one_more_pair, "supported"),
    "C7": (runs(**{SPEED: where(WINNER, SPEED, 22.4)}), "contradicted"),
    "C9": (runs(tpot_s_mean=pl.col("itl_s_p50")), "supported"),
    "C12": (trials(objective=where(pl.col("config_name") == "moderate", "objective", 2.5)), "contradicted"),
    "C18": (runs(output_tok_per_s=where(PIPELINE & TWO_GPUS, "output_tok_per_s", 700.0)), "contradicted"),
    "C25": (without_eager, "contradicted"),
    "C28": (given(worst=1, patterns=[{"gpu_memory_utilization": 0.85, "max_model_len": 16384}]), "supported"),
    "C29": (given(others=["8192"], stated={"8192": 21.7, "32768": 21.8}), "supported"),
    "C30": (
        runs(ttft_s_mean=where(pl.col("axis_max_num_batched_tokens") == "16384", "ttft_s_mean", 40.0)),
        "supported",
    ),
    "C31": (runs(ttft_s_p99=pl.lit(0.953), tpot_s_p99=pl.lit(0.049)), "supported"),
    "C32": (at_higher_rates, "contradicted"),
    "C34": (runs(power_w=1200 * (pl.col(SPEED) / 20).sqrt()), "supported"),
    "C35": (given(metrics=["output_tok_per_s"]), "not_supported"),
    "C33": (trials(kv_cache_bytes=pl.lit(53 * 2**30)), "contradicted"),
}
"""Claims of each kind, a change of what each rests on, and the verdict on that."""


def test_every_claim_is_there() -> None:
    """Every claim by its number, each once, each with why it matters."""
    assert {f"C{number}" for number in range(1, CLAIM_COUNT + 1)} == set(CLAIMS) == set(VERDICTS)
    assert all(claim.matters and claim.source for _, claim in CLAIMS.values())


@pytest.mark.parametrize("claim_id", VERDICTS)
def test_claims_have_their_verdict(claim_id: str, published: Frames) -> None:
    """The published data give the verdict, with arithmetic, and a corrected figure unless the claim holds."""
    archive, claim = CLAIMS[claim_id]
    outcome = judge(claim, evidence(published, archive)).outcome

    assert VERDICTS[claim_id] == outcome.verdict
    assert outcome.computation
    assert any(character.isdigit() for character in " ".join(outcome.computation))
    assert outcome.corrected or outcome.verdict == "supported"


@pytest.mark.parametrize("claim_id", DOCTORED)
def test_verdicts_follow_the_data(claim_id: str, published: Frames) -> None:
    """Another figure gives another verdict."""
    archive, claim = CLAIMS[claim_id]
    doctor, after = DOCTORED[claim_id]
    seen, changed = doctor(evidence(published, archive), claim)

    assert after == judge(changed, seen).outcome.verdict
    assert after != VERDICTS[claim_id]


def test_patterns_are_of_configs_and_not_of_launches(published: Frames) -> None:
    """With each config launched twice the worst one still stands for itself, and none of the others has its pattern."""
    archive, claim = CLAIMS["C28"]
    seen, claim = DOCTORED["C28"][0](evidence(published, archive), claim)
    twice = replace(seen, runs=pl.concat([seen.runs, seen.runs]))

    assert "supported" == judge(claim, seen).outcome.verdict == judge(claim, twice).outcome.verdict
