"""`python3 -I tokenpeak-node.pyz COMMAND --state DIR [--request FILE]`: one JSON object on a line of stdout.

Commands that take a request read it as JSON from FILE, or from stdin when FILE is `-` or not given; `restore` may have
one. Exit status 0; 3 with `{"error": …}` when the command could not do its work. With `--limited`, as root's guard
command starts it, COMMAND is all that its user chooses.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenpeak.node.bundle import own_digest, require_same
from tokenpeak.node.machine.error import ScriptError, refusal
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_output
from tokenpeak.node.protocol import frame, requests
from tokenpeak.node.protocol.answers import NodeAnswer, as_json
from tokenpeak.node.protocol.field import checks
from tokenpeak.node.protocol.requests import COMMANDS, NOTIFY


def answer(
    name: str, state: State, request_source: str | None, *, limited: bool, for_apply: bool = False
) -> NodeAnswer:
    """Carry out one command; its modules are imported only then."""
    try:
        declaration = state.declaration()
    except ScriptError:
        if COMMANDS[name].needs_declaration:
            raise
        declaration = {}
    if not limited:
        return _answer(name, state, declaration, request_source, limited=False)
    from tokenpeak.node import installation
    from tokenpeak.node.machine import root_environment

    root_environment.require_left()
    installation.require_permitted(name, request_source, declaration, for_apply)
    with installation.turn(state, name, for_apply):
        return _answer(name, state, declaration, request_source, limited=True)


def _answer(name: str, state: State, declaration: Json, request_source: str | None, *, limited: bool) -> NodeAnswer:
    if _may_use_tools(declaration):
        os.environ["PATH"] = f"{declaration['tools']}{os.pathsep}{os.environ.get('PATH', '')}"
    command = COMMANDS[name]
    if command.request is None:
        return _carry_out(name, state, declaration, limited=limited)
    source = request_source
    if source is None and (limited or not command.may_lack_request):
        source = "-"
    given = {} if source is None else frame.read(source)
    if "script" in checks(command.request):
        # Before its fields are looked at, which another version may have others of.
        require_same(given)
    return _carry_out_request(name, state, declaration, requests.parse(command.request, given), limited=limited)


def _carry_out(name: str, state: State, declaration: Json, *, limited: bool) -> NodeAnswer:
    """Carry out a command without a request."""
    if name == "install":
        return _install(state, declaration)
    if name == "probe":
        from tokenpeak.node.probe.probe import probe

        return probe(state, declaration)
    if name == "status":
        from tokenpeak.node.guard.status import status

        return status(state, declaration)
    if name == "describe":
        from tokenpeak.node.production.observation import describe

        return describe(state, declaration, limited=limited)
    if name == "lease":
        from tokenpeak.node.guard import heartbeats

        return heartbeats.listen(state)
    if name == "guard":
        from tokenpeak.node.guard import guard

        return guard.watch(state)
    if name == "telemetry":
        from tokenpeak.node.probe import meters

        return meters.sample_forever(state, declaration)
    from tokenpeak.node.production.production import produce

    return produce(state, declaration)


def _install(state: State, declaration: Json) -> NodeAnswer:
    from tokenpeak.node import installation, rights
    from tokenpeak.node.engine import images
    from tokenpeak.node.guard import guard

    rights.check(declaration, state)
    pulled = images.pull_missing(declaration)
    installation.remove_retired(state, declaration)
    changed = installation.put_commands(state, declaration)
    installed = guard.install(state)
    return replace(installed, changed=installed.changed or changed or pulled)


def _may_use_tools(declaration: Json) -> bool:
    """Whether there are declared programs that come before the system's, and nobody else than root may write them."""
    if not declaration.get("tools"):
        return False
    from tokenpeak.node import rights

    return not rights.tools_problems(declaration)


def _carry_out_request(name: str, state: State, declaration: Json, request: Any, *, limited: bool) -> NodeAnswer:
    """Carry out a command that has a request, once all of that is known to be right."""
    if name == "put":
        from tokenpeak.node.bundle import put

        return put(state, request, Path(sys.argv[0]))
    if name == "uninstall":
        from tokenpeak.node.installation import uninstall

        return uninstall(state, declaration, request)
    if name == "observe":
        from tokenpeak.node.production.observation import observe

        return observe(state, declaration, request)
    if name == "confirm":
        from tokenpeak.node.production.change import confirm

        return confirm(state, request)
    if name == "launch":
        from tokenpeak.node import installation
        from tokenpeak.node.engine.builds import require_allowed
        from tokenpeak.node.engine.launch import launch

        require_allowed(declaration, request)
        if limited:
            installation.check_launch(declaration, request)
        return launch(state, declaration, request)
    if name == "restore":
        from tokenpeak.node.production.restore import restore_command

        return restore_command(state, request)
    # What follows the trial's own time is bounded by the declaration too.
    after_s = request.production_ready_s
    if name == "finish":
        from tokenpeak.node.engine.finish import finish

        requests.require_within_limits(declaration, name, 0.0, request.engine_stop_s + after_s)
        return finish(state, declaration, request)
    from tokenpeak.node.production.change import change

    requests.require_within_limits(declaration, name, request.lease_s, request.confirm_within_s + after_s)
    return change(state, declaration, request, limited=limited)


def answered(
    command: str, folder: Path, request_source: str | None, *, limited: bool = False, for_apply: bool = False
) -> tuple[dict[str, Any], int]:
    """The JSON that a command prints, be it an answer or an error, and its exit status."""
    result: dict[str, Any]
    try:
        state = State.make(folder) if command in ("put", "install") and not limited else State(folder)
        found = answer(command, state, request_source, limited=limited, for_apply=for_apply)
        result, exit_status = as_json(found), 0
    except ScriptError as error:
        result, exit_status = {"error": {"code": error.code, "text": error.text}}, 3
    except OSError as error:
        result, exit_status = {"error": {"code": "system", "text": f"The system refused: {refusal(error)}."}}, 3
    except Exception as error:
        if not limited:
            raise
        # Who may only run the command gets an answer, and nothing of the script's inside.
        said = f"{type(error).__name__}: {shown_output(str(error))}"
        text = f"The command failed ({said}): ask who installed it to run it as root, which shows where."
        result, exit_status = {"error": {"code": "failed", "text": text}}, 3
    # Whoever reads it knows which version answered.
    return {**result, "script": own_digest()}, exit_status


def main() -> int:
    """Parse the command line, answer, and return the exit status."""
    parser = argparse.ArgumentParser(prog="tokenpeak-node", description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=[*COMMANDS, NOTIFY])
    parser.add_argument("--state", type=Path, required=True, help="the node's state folder")
    parser.add_argument("--request", help="a JSON file, or - for stdin")
    parser.add_argument("--limited", action="store_true", help="refuse what only root may ask")
    parser.add_argument("--for-apply", action="store_true", help="with --limited: what an apply takes, and no trial")
    arguments = parser.parse_args()
    if arguments.limited:
        from tokenpeak.node.machine import root_environment

        root_environment.enter()
    # On the controller's own machine a bound on the memory of its tasks came along, which an engine would inherit.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    # A controller that hangs up must not end a command in the middle of its work; the guard's lease is for that.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    own_digest()
    folder = arguments.state.absolute()
    source = arguments.request if arguments.request in (None, "-") else str(Path(arguments.request).absolute())
    # Nothing that this starts takes anything from the folder that its caller is in.
    sys.argv[0] = str(Path(sys.argv[0]).absolute())
    os.chdir("/")
    if arguments.command == NOTIFY and not arguments.limited:
        from tokenpeak.node.guard.notify import main as send_notification

        return send_notification()
    options = {"limited": arguments.limited, "for_apply": arguments.for_apply}
    if arguments.command == "lease":
        # It answers line by line from here on.
        print(flush=True)
    result, exit_status = answered(arguments.command, folder, source, **options)
    print(frame.framed(result), end="", flush=True)
    return exit_status


if __name__ == "__main__":
    sys.exit(main())
