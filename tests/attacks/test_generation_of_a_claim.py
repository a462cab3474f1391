"""The tuner claims the operator's sweep with the highest generation that there is.

No later controller could resume that sweep on the node: each of its commands was `fenced`, for good.
"""

from pathlib import Path

import pytest

from tokenpeak.node.guard import fence
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State


def test_it_rises_by_steps(tmp_path: Path) -> None:
    """A leap is refused and noted nowhere; whoever resumes is some generations further, also of what is noted."""
    state = State.make(tmp_path / "state")

    for generation in (2**31 - 1, 1002):
        with pytest.raises(ScriptError, match=f"generation {generation}, and of this sweep at most 1001") as refused:
            fence.enter(state, {"sweep_id": "s", "generation": generation}, "evil")
        assert "request" == refused.value.code
    assert {} == fence.generations(state)

    for generation in (1001, 2001):
        fence.enter(state, {"sweep_id": "s", "generation": generation}, f"controller {generation}")
        assert {"s": generation} == fence.generations(state)
    with pytest.raises(ScriptError, match="at most 3001"):
        fence.enter(state, {"sweep_id": "s", "generation": 3002}, "evil")
