"""The engine's user has its program print a version of thousands of digits, or the node script fail by other means.

`probe` by root's guard command ended in a traceback, which no controller reads.
"""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from tokenpeak.node import __main__
from tokenpeak.node.engine import installed
from tokenpeak.node.machine.state import State

DIGITS = "1" * 5_000


@pytest.mark.parametrize("printed", [f"{DIGITS}.1.2", f"0.{DIGITS}", f"0.1rc{DIGITS}", "0." + "1." * 5_000 + "1"])
def test_version(printed: str, tmp_path: Path) -> None:
    """What is taken for the version is as long as one is; the engine is asked for its flags as ever."""
    program = tmp_path / "vllm"
    program.write_text(f"#!/bin/sh\ntest $1 = --version && echo {printed} || echo '  --flag'\n")
    program.chmod(0o755)
    state = State.make(tmp_path / "state")
    build = {"command": [str(program)]}

    found = installed.engine_version({}, build, state)

    assert found is not None
    assert len(found) < 100
    assert ["  --flag"] == installed.engine_help({}, build, found, state)


def test_defect_of_the_script(tmp_path: Path) -> None:
    """Whatever fails, who may only run the command gets an answer; root sees where."""
    folder = tmp_path / "state"
    State.make(folder)
    with patch.object(__main__, "answer", side_effect=ValueError("bad\n--api-key s3cret")):
        result, exit_status = __main__.answered("probe", folder, None, limited=True)
        with pytest.raises(ValueError, match="bad"):
            __main__.answered("probe", folder, None)

    assert (3, "failed") == (exit_status, result["error"]["code"])
    assert "ValueError: bad" in result["error"]["text"]
    assert "s3cret" not in json.dumps(result)
