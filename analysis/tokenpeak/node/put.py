"""Put: the node script, the node's declaration and its controller's secret into the state folder, where they differ."""

from __future__ import annotations

from pathlib import Path

from tokenpeak.node.error import ScriptError
from tokenpeak.node.protocol.answers import PutAnswer
from tokenpeak.node.protocol.requests import PutRequest
from tokenpeak.node.state import DECLARATION, SCRIPT, State, content_of

SCRIPT_MODE = 0o755
PRIVATE_MODE = 0o600


def put(state: State, request: PutRequest, script: Path) -> PutAnswer:
    """Put `script`, the file that runs, and what the request holds into the state folder; whether anything differed."""
    if not script.is_file():
        raise ScriptError("put", f"{script} is no file: only the packed node script can be put into a state folder.")
    differed = []
    # Under a name of its own: another controller's trial may be under way.
    if request.secret is not None and request.secret_value is not None:
        differed.append(state.put(request.secret, secret_content(request.secret_value), PRIVATE_MODE))
    differed.append(state.put(DECLARATION, content_of(request.declaration), PRIVATE_MODE))
    differed.append(state.put(SCRIPT, script.read_bytes(), SCRIPT_MODE))
    return PutAnswer(changed=any(differed))


def secret_content(value: str) -> bytes:
    """The secret as its file has it."""
    return f"{value}\n".encode()
