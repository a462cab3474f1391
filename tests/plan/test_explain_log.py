# ruff: noqa: E501 — log lines are as long as the engine writes them
"""`tokenpeak explain --log`: class, cause and advice of an engine's log, and a sentence for what is none."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tokenpeak.cli.predict import explain
from tokenpeak.errors import InputError

LOGS = Path(__file__).parent / "logs"
STARTED = "(APIServer pid=7) INFO:     Application startup complete.\n"
REFUSED = "(APIServer pid=7) ERROR 11-28 09:00:00 [serving.py:1007] ValueError: This model's maximum context length is 8192.\n"


def explained(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(explain, list(arguments), input=given, catch_exceptions=False)


def test_class_cause_and_advice_are_printed() -> None:
    """Of a log that a real engine wrote."""
    printed = explained("--log", str(LOGS / "tensor-parallel.log")).output.splitlines()

    assert "class: tensor_parallel_mismatch" == printed[0]
    assert printed[1].startswith("cause: 8 attention heads")
    assert "advice: Choose a tensor_parallel_size that divides them." == printed[2]
    assert printed[3].startswith("log: ")


def test_standard_input_is_read() -> None:
    """By the name -."""
    assert (
        "class: dtype_unsupported"
        in explained("--log", "-", given="type fp8e4nv not supported in this architecture").output
    )


@pytest.mark.parametrize("after", ["", REFUSED, "(APIServer pid=7) INFO:     Shutting down\n"])
def test_engine_that_started_shows_no_failure(after: str) -> None:
    """Nor does a request that it refused, nor its shutdown in order."""
    noise = "ERROR 02-03 12:28:41 [repo_utils.py:45] Error retrieving safetensors: Repo id must be in the form 'a'\n"

    assert (
        "Standard input shows no failure: the engine started.\n"
        == explained("--log", "-", given=noise + STARTED + after).output
    )


def test_engine_that_died_after_its_start_failed() -> None:
    """What ended it is its cause."""
    died = (
        "(EngineCore pid=9) ERROR 11-28 09:00:00 [core.py:1131] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "(APIServer pid=7) ERROR 11-28 09:00:00 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    )

    assert "class: out_of_memory" in explained("--log", "-", given=STARTED + died).output


def test_log_that_ends_early_is_unknown() -> None:
    """It shows neither a failure nor a server."""
    printed = explained("--log", "-", given="INFO 11-28 09:00:00 [config.py:1] Using max model len 8192\n").output

    assert "class: unknown\ncause: The log ends before the engine serves" in printed


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "cannot be read"), (b"", "is empty"), (b" \n", "is empty"), (b"\x7fELF\0\1\2", "is no text")],
)
def test_what_is_no_log_is_said(tmp_path: Path, content: bytes | None, word: str) -> None:
    """A file that is missing, empty or binary ends in a sentence."""
    log = tmp_path / "engine.log"
    if content is not None:
        log.write_bytes(content)

    with pytest.raises(InputError, match=word):
        explained("--log", str(log))


@pytest.mark.parametrize("arguments", [(), ("--log", "a", "b")])
def test_archives_or_a_log(arguments: tuple[str, ...]) -> None:
    """One of the two is named."""
    with pytest.raises(InputError, match="not both"):
        explained(*arguments)


def test_folder_is_no_log(tmp_path: Path) -> None:
    """It ends in a sentence, too."""
    with pytest.raises(InputError, match="cannot be read"):
        explained("--log", str(tmp_path))
