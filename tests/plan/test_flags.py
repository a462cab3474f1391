from pathlib import Path

import pytest

from tokenpeak.vllm.flags import flag_table, known_flags, parse_help

HELP = (Path(__file__).parent / "help-0.32.0.txt").read_text()
"""What the real engine 0.32.0 printed for `vllm serve --help=all`."""


def test_table_and_the_engine_s_own_help_agree_on_form() -> None:
    """Which flags have a `--no-`, take a list or nothing, and what they may be chosen from, is the same in both."""
    parsed, table = parse_help(HELP, "0.32.0"), known_flags("0.32.0")
    differ = [
        name
        for name, facts in table.items()
        if facts.kind != parsed[name].kind
        or (facts.choices and parsed[name].choices and set(map(str, facts.choices)) != set(parsed[name].choices))
    ]

    # The engine takes one choice away while it builds its parser.
    assert ["all2all_backend"] == differ


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [
        ("swap_space", "0.7.3", "0.17.1"),
        ("num_scheduler_steps", "0.7.3", "0.9.2"),
        ("speculative_model", "0.7.3", "0.7.3"),
        ("disable_log_requests", "0.7.3", "0.16.0"),
        ("kv_cache_memory_bytes", "0.10.2", "0.33.0"),
        ("VLLM_ATTENTION_BACKEND", "0.7.3", "0.14.1"),
    ],
)
def test_flags_come_and_go(flag: str, first: str, last: str) -> None:
    """The first and last release with a flag or variable are those of the releases' own sources."""
    assert (first, last) == flag_table().lifetime(flag)


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.8.5.post1", "0.8.5"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.10.1", "0.10.2"),
        ("0.99.0", "0.33.0"),
        ("0.6.6", "0.7.3"),
        (None, "0.33.0"),
    ],
)
def test_version_stands_for_a_release_of_the_table(version: str | None, release: str) -> None:
    """A version is read by the table's release of the same minor number, else the nearest that there is."""
    assert release == flag_table().releases[flag_table().index(version)]


OLD_HELP = """\
options:
  -h, --help            show this help message and exit
  --enable-chunked-prefill [ENABLE_CHUNKED_PREFILL]
                        If set, the prefill requests can be chunked.
  --enforce-eager       Always use eager-mode PyTorch. See --made-up.
  --enable-prefix-caching, --no-enable-prefix-caching
                        Enables automatic prefix caching.
  --kv-cache-dtype {auto,fp8,None}
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
  --lora-modules LORA_MODULES [LORA_MODULES ...]
  --brand-new BRAND_NEW
"""


def test_help_of_an_old_release_is_read() -> None:
    """Each form that argparse prints gives its kind; names in prose are not flags; unknown flags have a bare value."""
    found = {name: facts.kind for name, facts in parse_help(OLD_HELP, "0.7.3").items()}

    assert {
        "enable_chunked_prefill": "bool_value",
        "enforce_eager": "switch",
        "enable_prefix_caching": "bool",
        "kv_cache_dtype": "str",
        "tensor_parallel_size": "int",
        "lora_modules": "list",
        "brand_new": "value",
    } == found
