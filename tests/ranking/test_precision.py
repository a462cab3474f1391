"""Precision of a config: what comes to the same, and what a change of it is called."""

import pytest

from archive_factory import config_of
from tokenpeak.ranking.precision import precision_of, setting_changes
from tokenpeak.records import Config, ModelName


def test_a_setting_written_out_at_the_engines_default_is_no_change() -> None:
    """Changes are counted against the engine's own defaults."""
    plain = config_of({"max_num_seqs": 64}, name="plain")
    spelled = config_of({"max_num_seqs": 64, "gpu_memory_utilization": 0.92}, name="spelled")
    other = config_of({"max_num_seqs": 64, "max_num_batched_tokens": 4096}, name="other")

    assert (0, 1) == (setting_changes(spelled, plain, "0.32.0"), setting_changes(other, plain, "0.32.0"))


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
