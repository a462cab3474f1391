"""Every sweep's own figures are checked: nothing is found in a sound one, and each planted mistake is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak.checks.catalogue import GUARDS, guarded
from tokenpeak.checks.evidence import Evidence
from tokenpeak.store.frames import open_frames
from tokenpeak.store.pack import unpacked

SWEEPS = Path(__file__).parent / "sweeps"
"""Sweeps of the simulated engine and of vLLM on a CPU, as they were measured; requests and logs taken out."""


def evidence(path: Path) -> Evidence:
    """One archive as checks read it."""
    frames = open_frames(path)
    return Evidence(
        spec=frames.specs[frames.sweeps["sweep_id"][0]],
        nodes=frames.nodes,
        configs=frames.configs,
        trials=frames.trials,
        runs=frames.runs,
    )


@pytest.fixture(scope="module", params=sorted(SWEEPS.glob("*.tar.zst")), ids=lambda path: path.name[16:-8])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A sweep that was really carried out."""
    return evidence(unpacked(request.param, tmp_path_factory.mktemp("unpacked")))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A sweep of two kinds of hardware, every config launched twice."""
    path = make_archive(tmp_path_factory.mktemp("sweep") / "sound", seconds=3, replicates=2).path
    return evidence(path)


Planted = Callable[[Evidence], Evidence]
FIRST = pl.int_range(pl.len()) == 0


def runs(**columns: pl.Expr) -> Planted:
    """Change columns of the runs."""
    return lambda seen: replace(seen, runs=seen.runs.with_columns(**columns))


def times(column: str, factor: float) -> pl.Expr:
    """The first row's figure times a factor."""
    return pl.when(FIRST).then(pl.col(column) * factor).otherwise(pl.col(column))


def a_copy_with_a_second_more(seen: Evidence) -> Evidence:
    """As if the second run had been made of the first by adding a second."""
    first, rest = seen.runs.head(1), seen.runs.tail(-1)
    names = [f"ttft_s_{name}" for name in ("mean", "p50", "p95")]
    other = first.with_columns(pl.lit("9999-copy").alias("trial_id"), *(pl.col(name) + 1 for name in names))
    return replace(seen, runs=pl.concat([first, other, rest]))


def only_the_diagonal(seen: Evidence) -> Evidence:
    """As if the two settings had only ever been changed together."""
    seqs, tokens = (pl.col(f"axis_{axis}") for axis in ("max_num_seqs", "max_num_batched_tokens"))
    return replace(seen, runs=seen.runs.filter((seqs == seqs.max()) == (tokens == tokens.max())))


def noisy(seen: Evidence) -> Evidence:
    """As if a relaunch changed more than any setting does."""
    first, second = (
        seen.trials.with_columns(objective=pl.lit(objective), replicate=pl.lit(launch, dtype=pl.Int64))
        for launch, objective in ((0, 1000.0), (1, 100.0))
    )
    return replace(seen, trials=pl.concat([first, second]))


def longer_answers(seen: Evidence) -> Evidence:
    """As if the first run's config had written twice as much, at the same speed."""
    doubled = [times(name, 2).cast(seen.runs.schema[name]).alias(name) for name in ("output_tokens", "duration_s")]
    slower = [times(name, 0.5).alias(name) for name in ("request_per_s", "input_tok_per_s", "power_w")]
    return replace(seen, runs=seen.runs.with_columns(*doubled, *slower))


def two_releases(seen: Evidence) -> Evidence:
    """As if half of the trials had run another release of the engine."""
    version = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("0.32.0")).otherwise(pl.lit("0.33.0"))
    return replace(seen, trials=seen.trials.with_columns(engine_version=version))


def all_heads_counted(seen: Evidence) -> Evidence:
    """As if a model with a KV head for four query heads had been predicted a cache for all of them."""
    predicted = (pl.col("kv_cache_tokens") / 4).cast(pl.Int64)
    return replace(
        seen,
        configs=seen.configs.with_columns(model_name=pl.lit("meta-llama/Llama-3.1-8B-Instruct")),
        trials=seen.trials.with_columns(predicted_kv_cache_tokens=predicted),
    )


PLANTED: dict[str, Planted] = {
    "rates": runs(
        output_tok_per_s=pl.when(FIRST)
        .then(pl.col("request_output_tok_per_s_mean"))
        .otherwise(pl.col("output_tok_per_s"))
    ),
    "waves": runs(steady_waves=pl.lit(1, dtype=pl.Int64)),
    "units": runs(energy_j_per_output_tok=pl.col("energy_j_per_output_tok") * 0.001),
    "memory": all_heads_counted,
    "events": runs(itl_s_mean=times("itl_s_mean", 16)),
    "pairs": only_the_diagonal,
    "lengths": longer_answers,
    "independence": a_copy_with_a_second_more,
    "limits": runs(output_tok_per_s=times("output_tok_per_s", 100)),
    "spread": noisy,
    "second_variables": two_releases,
}


def test_a_sound_sweep_has_no_findings(sound: Evidence) -> None:
    """Every check has something to look at and finds nothing."""
    found = guarded(sound)

    assert {guard.name: () for guard in GUARDS} == {name: each.findings for name, each in found.items()}
    assert all(each.looked_at for each in found.values())


@pytest.mark.parametrize("guard", PLANTED)
def test_planted_mistakes_are_found(guard: str, sound: Evidence) -> None:
    """A mistake put into a copy is found by the check that is there for it, with where it is."""
    findings = guarded(PLANTED[guard](sound))[guard].findings

    assert findings
    assert all(finding.where and finding.text for finding in findings)


def test_measured_sweeps_have_no_findings(measured: Evidence) -> None:
    """Nothing false is found in sweeps of the simulated engine and of vLLM on a CPU."""
    found = guarded(measured)

    # Their loads are of before there was a steady window: of two waves.
    assert all("the whole load of 2 waves" in finding.text for finding in found["waves"].findings)
    others = [guard.name for guard in GUARDS if guard.name != "waves"]
    assert dict.fromkeys(others, ()) == {name: found[name].findings for name in others}
    # Limits and memory need a GPU and a model whose facts are known, which the CPU sweep has not.
    assert sum(each.looked_at > 0 for each in found.values()) >= len(GUARDS) - 3
