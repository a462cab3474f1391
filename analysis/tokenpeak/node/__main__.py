"""`python3 tokenpeak-node.pyz COMMAND --state DIR [--request FILE]`: one JSON object on stdout.

A request comes as JSON from FILE, or from stdin when FILE is `-`. Exit status 0; 3 with `{"error": …}` when the
command could not do its work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tokenpeak.node.script import own_digest
from tokenpeak.node.state import Json, State
from tokenpeak.node.trouble import Trouble

COMMANDS = (
    "install",
    "probe",
    "launch",
    "finish",
    "restore",
    "status",
    "lease",
    "guard",
    "telemetry",
    "produce",
    "uninstall",
)


def answer(command: str, state: State, request_source: str | None, *, limited: bool) -> Json:
    """Carry out one command; its modules are imported only then."""
    declaration = state.read("node.json") or {}
    if limited:
        from tokenpeak.node import launcher

        launcher.check(command, request_source, declaration)
    request = read_request(request_source)
    if limited and command == "launch":
        launcher.check_launch(declaration, request)
    if declaration.get("tools"):
        os.environ["PATH"] = f"{declaration['tools']}{os.pathsep}{os.environ.get('PATH', '')}"
    if command == "install":
        from tokenpeak.node import guard, launcher, removal

        removal.remove_retired(state, declaration)
        changed = launcher.install(state, declaration)
        installed = guard.install(state)
        return {**installed, "changed": installed["changed"] or changed}
    if command == "probe":
        from tokenpeak.node.probe import probe

        return probe(state, declaration)
    if command == "launch":
        from tokenpeak.node.launch import launch

        return launch(state, declaration, request)
    if command == "finish":
        from tokenpeak.node.finish import finish

        return finish(state, declaration, request)
    if command == "restore":
        from tokenpeak.node.restore import restore_command

        return restore_command(state, declaration, request)
    if command == "status":
        from tokenpeak.node.status import status

        return status(state, declaration)
    if command == "lease":
        from tokenpeak.node import lease

        return lease.listen(state)
    if command == "guard":
        from tokenpeak.node import guard

        return guard.watch(state)
    if command == "telemetry":
        from tokenpeak.node import telemetry

        return telemetry.sample_forever(state, declaration.get("tools"))
    if command == "uninstall":
        from tokenpeak.node.removal import uninstall

        return uninstall(state, declaration, request)
    from tokenpeak.node.produce import produce

    return produce(state, declaration)


def read_request(source: str | None) -> Json:
    """The request as a JSON object; an empty one when none is given."""
    if source is None:
        return {}
    raw = sys.stdin.read() if source == "-" else Path(source).read_text()
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise Trouble("request", f"The request is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Trouble("request", "The request must be a JSON object.")
    return value


def main() -> int:
    """Parse the command line, answer, and turn trouble into a sentence."""
    parser = argparse.ArgumentParser(prog="tokenpeak-node", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--state", type=Path, required=True, help="the node's state folder")
    parser.add_argument("--request", help="a JSON file, or - for stdin")
    parser.add_argument("--limited", action="store_true", help="refuse what only root may ask")
    arguments = parser.parse_args()
    # A controller that hangs up must not end a command in the middle of its work; the guard's lease is for that.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    result: dict[str, Any]
    try:
        state = State(arguments.state)
        result, exit_status = answer(arguments.command, state, arguments.request, limited=arguments.limited), 0
    except Trouble as trouble:
        result, exit_status = {"error": {"code": trouble.code, "text": trouble.text}}, 3
    except OSError as error:
        result, exit_status = {"error": {"code": "system", "text": f"The system refused: {error}."}}, 3
    # Whoever reads it knows which version answered.
    print(json.dumps({**result, "script": own_digest()}), flush=True)
    return exit_status


if __name__ == "__main__":
    sys.exit(main())
