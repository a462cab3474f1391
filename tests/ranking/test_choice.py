"""The recommended config of a winner group: by settings."""

from collections.abc import Mapping, Sequence

import pytest
from tokenpeak.ranking.choice import Choice, Launch, choose, precision_of

from archive_factory import config_of, sweep_spec
from tokenpeak.ranking.ties import winner_group
from tokenpeak.records import Config, ModelName

CONFIGS = {
    "fast": config_of({"max_num_seqs": 64, "max_num_batched_tokens": 4096}, name="fast"),
    "near": config_of({"max_num_seqs": 64}, name="near"),
    "production": config_of({"max_num_seqs": 128}, name="production"),
    "slow": config_of({"max_num_seqs": 8}, name="slow"),
}
VALUES = {"fast": (101.0, 103.0, 105.0), "near": (100.0, 102.0, 104.0), "slow": (50.0, 51.0, 52.0)}
"""Launches that cannot separate fast and near; fast has the better mean."""


def chosen(
    values: Mapping[str, Sequence[float]] = VALUES,
    *,
    planned: Sequence[Config] = tuple(CONFIGS.values()),
    broken: Sequence[str] = (),
) -> Choice:
    """The choice among configs by their launches' objectives."""
    spec = sweep_spec()
    launches = [Launch(config=CONFIGS[name], slo_met=name not in broken) for name, own in values.items() for _ in own]
    verdicts = winner_group({CONFIGS[name].config_id: own for name, own in values.items()})
    found = choose(spec, verdicts, launches, planned, "0.32.0")
    assert found is not None
    return found


def test_of_a_tie_the_closest_to_production_is_recommended() -> None:
    """The config that changes fewer settings of production goes before one that measured a little more."""
    found = chosen()

    assert ("near", 2) == (found.config.name, found.group)
    assert "2 configs tie; this one measured 1.0% below the best and is closest to production" == found.words


def test_production_in_the_group_is_kept() -> None:
    """What runs now and is tied with the best stays."""
    found = chosen(VALUES | {"production": (99.0, 101.0, 103.0)})

    assert "production" == found.config.name
    assert found.words.endswith("changes nothing of production: keep what runs now")


def test_without_production_the_engines_defaults_are_what_it_is_close_to() -> None:
    """A setting written out at the engine's own default is no change of it."""
    spelled = config_of({"max_num_seqs": 64, "gpu_memory_utilization": 0.92}, name="fast")
    launches = [Launch(config=config, slo_met=None) for config in (spelled, CONFIGS["fast"])]
    verdicts = winner_group({spelled.config_id: [100.0], CONFIGS["fast"].config_id: [101.0]})
    found = choose(sweep_spec(), verdicts, launches, (), "0.32.0")
    assert found is not None

    assert spelled.config_id == found.config.config_id
    assert found.words.endswith("is closest to the engine's defaults")


def test_a_config_that_broke_the_slo_is_not_recommended_for_its_closeness() -> None:
    """Of a tie, one that broke the SLO in a launch goes last."""
    found = chosen(broken=["near"])

    assert "fast" == found.config.name
    assert "2 configs tie, 1 broke the SLO; this one measured best" == found.words


def config(model: str = "m", **flags: str | None) -> Config:
    """A config with these flags."""
    return Config(config_id="0" * 12, name="c", model=ModelName(name=model, served_name="m"), flags=flags)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"kv_cache_dtype": "auto"}),
        ({"dtype": "bfloat16"}, {"dtype": "auto"}),
        ({"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}),
        ({"quantization": None}, {}),
    ],
)
def test_what_comes_to_the_same_is_equal(one: dict[str, str | None], other: dict[str, str | None]) -> None:
    """A default spelled out and another name of a format change no precision."""
    assert precision_of(config(**one)) == precision_of(config(**other))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"quantization": "fp8", "kv_cache_dtype": "fp8"}, ("fp8 weights", "fp8 KV cache")),
        ({"dtype": "float32"}, ("computation in float32",)),
        ({"model": "m-awq"}, ("model m-awq",)),
        ({"max_num_seqs": "8"}, ()),
    ],
)
def test_a_change_of_precision_is_named(flags: dict[str, str], expected: tuple[str, ...]) -> None:
    """Weights, KV cache, computation and the model are what precision is; a batch size is not."""
    assert expected == precision_of(config(**flags)).changes(precision_of(config()))
