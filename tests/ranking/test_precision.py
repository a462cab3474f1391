"""Precision: which configs give the same answers but for rounding."""

import pytest

from tokenpeak.ranking.choice import precision_of
from tokenpeak.records import Config, ModelName


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
