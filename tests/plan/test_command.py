"""The engine's command line in the words of each release, by the table of flags and the engine's own help."""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.errors import PlanError
from tokenpeak.records import Config, ModelName
from tokenpeak.vllm.command import command_line, engine_argv, launched_program, paste_command, served_from
from tokenpeak.vllm.flags import flag_table, known_flags, parse_help

MODEL = ModelName(name="org/model", served_name="model")


def config(
    flags: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    force: bool = False,
    engine: str | None = None,
) -> Config:
    return Config(
        config_id="0" * 12,
        name="mine",
        model=MODEL,
        flags=flags or {},
        env=env or {},
        force=force,
        engine_version=engine,
    )


def arguments(version: str | None, **flags: Any) -> tuple[str, ...]:
    return command_line(config(flags), version).arguments


def complaint(version: str | None, **flags: Any) -> str:
    with pytest.raises(PlanError) as caught:
        arguments(version, **flags)
    return str(caught.value)


def test_command_line_begins_with_what_the_inventory_says() -> None:
    """Executable, model, address and served name, then the flags."""
    argv = engine_argv(config({"max_num_seqs": 8}), host="127.0.0.1", port=8099, engine_version="0.32.0")

    assert "vllm serve org/model --host 127.0.0.1 --port 8099 --served-model-name model --max-num-seqs 8" == " ".join(
        argv
    )


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        # Booleans
        ("0.8.5", {"enforce_eager": True}, ("--enforce-eager",)),
        ("0.32.0", {"enforce_eager": False}, ("--no-enforce-eager",)),
        ("0.7.3", {"enable_chunked_prefill": False}, ("--enable-chunked-prefill=False",)),
        # Numbers, sizes, lists and JSON
        ("0.33.0", {"max_model_len": -1}, ("--max-model-len=-1",)),
        ("0.33.0", {"cudagraph_capture_sizes": "[1,2,4]"}, ("--cudagraph-capture-sizes", "1", "2", "4")),
        # Renamed, folded, unfolded
        ("0.33.0", {"cuda_graph_sizes": "[1,8]"}, ("--cudagraph-capture-sizes", "1", "8")),
        # What says nothing is left out
        ("0.33.0", {"swap_space": 4}, ()),
    ],
)
def test_flags_are_written_in_the_release_s_words(
    version: str, flags: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """A flag written once gives the right arguments for each release."""
    assert expected == arguments(version, **flags)


def test_attention_backend_is_a_variable_or_a_flag() -> None:
    """Up to 0.12 a variable says it, since 0.15 a flag; either may be written."""
    new = command_line(config(env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}), "0.33.0")
    old = command_line(config({"attention_backend": "FLASHINFER"}), "0.11.2")

    assert (("--attention-backend", "FLASHINFER"), {}) == (new.arguments, new.env)
    assert ((), {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}) == (old.arguments, old.env)


@pytest.mark.parametrize(
    ("version", "flags", "words"),
    [
        ("0.33.0", {"max_num_seq": 8}, ["max_num_seq", "0.33.0", "Did you mean max_num_seqs"]),
        ("0.33.0", {"swap_space": 16}, ["swap_space", "went after 0.17.1", "leave it out"]),
        ("0.8.5", {"kv_cache_memory_bytes": 1024}, ["came with 0.10.2"]),
        ("0.33.0", {"max_num_seqs": "many"}, ["max_num_seqs", "'many'", "a whole number"]),
        ("0.33.0", {"enforce_eager": "yes"}, ["true or false"]),
        ("0.33.0", {"dtype": "float8"}, ["float8", "one of auto, half"]),
        ("0.33.0", {"speculative_config": '{"method": ngram}'}, ["wants JSON"]),
        ("0.33.0", {"port": 9000}, ["tokenpeak_port"]),
        ("0.33.0", {"api_key": "secret-value"}, ["a key file"]),
    ],
)
def test_wrong_flag_is_named_with_what_to_write(version: str, flags: dict[str, Any], words: list[str]) -> None:
    """An error names the flag, the value and what the release takes instead."""
    text = complaint(version, **flags)

    assert [] == [word for word in words if word not in text]
    assert "secret-value" not in text


def test_forced_config_is_passed_as_written() -> None:
    """A forced config reaches the engine as it is: its refusal is the result."""
    forced = config({"swap_space": 16, "made_up": True, "dtype": "float8"}, force=True)

    assert ("--swap-space", "16", "--made-up", "--dtype", "float8") == command_line(forced, "0.33.0").arguments


def test_installed_engine_s_help_is_the_authority() -> None:
    """A flag that only the engine's own help names is passed; one that it does not name is refused."""
    known = parse_help("  --brand-new BRAND_NEW\n", "0.33.0")

    assert ("--brand-new", "7") == command_line(config({"brand_new": 7}), "0.33.0", known).arguments
    with pytest.raises(PlanError, match="max_num_seqs"):
        command_line(config({"max_num_seqs": 8}), "0.33.0", known)


def test_paste_command_is_quoted_for_a_shell() -> None:
    """What is printed can be pasted: JSON quoted, variables in front."""
    pasted = config(
        {"speculative_config": '{"method":"ngram","num_speculative_tokens":3}', "max_num_seqs": 8}, env={"A": "b c"}
    )

    assert (
        "A='b c' vllm serve org/model --served-model-name model "
        """--speculative-config '{"method":"ngram","num_speculative_tokens":3}' --max-num-seqs 8"""
    ) == paste_command(pasted)


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (("/opt/vllm/bin/vllm", "serve"), ["org/model"]),
        (("python3", "-m", "vllm.entrypoints.openai.api_server"), ["--model", "org/model"]),
    ],
)
def test_module_of_older_images_gets_its_model_by_an_option(program: tuple[str, ...], named: list[str]) -> None:
    """A word would be refused or, worse, another model served; what was launched is read back either way."""
    argv = engine_argv(config({}), host="127.0.0.1", port=8099, engine_version="0.8.5", executable=program)

    assert [*program, *named, "--host"] == argv[: len(program) + len(named) + 1]
    assert (program, "org/model") == (launched_program(argv), served_from(argv))
    assert " ".join([*program, *named]) in paste_command(config({}), program)


@pytest.mark.parametrize("version", flag_table().releases)
def test_everyday_flags_work_in_every_release(version: str) -> None:
    """The flags that most sweeps vary are taken, and written alike, from 0.7 to 0.33."""
    found = arguments(version, max_num_seqs=8, max_num_batched_tokens=512, enforce_eager=True, dtype="float16")

    assert "--max-num-seqs 8 --max-num-batched-tokens 512 --enforce-eager --dtype float16" == " ".join(found)


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
        ("speculative_model", "0.7.3", "0.7.3"),
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
