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

from tokenpeak.node.installation.bundle import own_digest, require_same
from tokenpeak.node.machine.error import ScriptError, refusal
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_output
from tokenpeak.node.protocol.answers import NodeAnswer, as_json
from tokenpeak.node.protocol.frame import framed

COMMANDS = (
    "put",
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
    "notify",
    "uninstall",
    "describe",
    "observe",
    "change",
    "confirm",
)
WITH_REQUEST = ("put", "launch", "finish", "restore", "uninstall", "observe", "change", "confirm")
OPTIONAL_REQUEST = ("restore", "uninstall")


def answer(
    command: str, state: State, request_source: str | None, *, limited: bool, for_apply: bool = False
) -> NodeAnswer:
    """Carry out one command; its modules are imported only then."""
    try:
        declaration = state.declaration()
    except ScriptError:
        # What gives the node back needs the record alone, and must not fail for what somebody did to another file;
        # `put` replaces that file.
        if command not in ("guard", "restore", "lease", "telemetry", "put"):
            raise
        declaration = {}
    if limited:
        from tokenpeak.node.installation import root_command
        from tokenpeak.node.machine import root_environment

        root_environment.require_left()
        root_command.check(command, request_source, declaration, for_apply)
        with root_command.turn(state, command, for_apply):
            return _answer(command, state, declaration, request_source, limited=True)
    return _answer(command, state, declaration, request_source, limited=False)


def _answer(command: str, state: State, declaration: Json, request_source: str | None, *, limited: bool) -> NodeAnswer:
    if _may_use_tools(declaration):
        os.environ["PATH"] = f"{declaration['tools']}{os.pathsep}{os.environ.get('PATH', '')}"
    if command in WITH_REQUEST:
        return _answer_request(command, state, declaration, request_source, limited=limited)
    if command == "install":
        from tokenpeak.node.engine import images
        from tokenpeak.node.guard import guard
        from tokenpeak.node.installation import removal, rights, root_command

        rights.check(declaration, state)
        pulled = images.pull_missing(declaration)
        removal.remove_retired(state, declaration)
        changed = root_command.install(state, declaration)
        installed = guard.install(state)
        return replace(installed, changed=installed.changed or changed or pulled)
    if command == "probe":
        from tokenpeak.node.probe.facts import probe

        return probe(state, declaration)
    if command == "status":
        from tokenpeak.node.guard.status import status

        return status(state, declaration)
    if command == "describe":
        from tokenpeak.node.production.describe import describe

        return describe(state, declaration, limited=limited)
    if command == "lease":
        from tokenpeak.node.guard import lease

        return lease.listen(state)
    if command == "guard":
        from tokenpeak.node.guard import guard

        return guard.watch(state)
    if command == "telemetry":
        from tokenpeak.node.probe import sampler

        return sampler.sample_forever(state, declaration)
    from tokenpeak.node.produce import produce

    return produce(state, declaration)


def _may_use_tools(declaration: Json) -> bool:
    """Whether there are declared programs that come before the system's, and nobody else than root may write them."""
    if not declaration.get("tools"):
        return False
    from tokenpeak.node.installation import rights

    return not rights.tools_problems(declaration)


def _answer_request(
    command: str, state: State, declaration: Json, request_source: str | None, *, limited: bool
) -> NodeAnswer:
    """Carry out a command that has a request, once all of that is known to be right."""
    from tokenpeak.node.protocol import requests

    source = request_source
    if source is None and (limited or command not in OPTIONAL_REQUEST):
        source = "-"
    given = {} if source is None else requests.read(source)
    if command == "put":
        from tokenpeak.node.installation.bundle import put

        return put(state, requests.parse(requests.PutRequest, given), Path(sys.argv[0]))
    if command == "uninstall":
        from tokenpeak.node.installation.removal import uninstall

        return uninstall(state, declaration, requests.parse(requests.UninstallRequest, given))
    if command in ("observe", "change", "confirm"):
        return _answer_apply(command, state, declaration, given, limited=limited)
    if command == "launch":
        from tokenpeak.node.engine.launch import launch
        from tokenpeak.node.installation import root_command

        # Before its fields are looked at, which another version may have others of.
        require_same(given)

        launch_request = requests.parse(requests.LaunchRequest, given)
        requests.check_declared(declaration, launch_request)
        if limited:
            root_command.check_launch(declaration, launch_request)
        return launch(state, declaration, launch_request)
    if command == "finish":
        from tokenpeak.node.engine.finish import finish

        finish_request = requests.parse(requests.FinishRequest, given)
        requests.check_finish(declaration, finish_request)
        return finish(state, declaration, finish_request)
    from tokenpeak.node.production.restore import restore_command

    return restore_command(state, requests.parse(requests.RestoreRequest, given))


def _answer_apply(command: str, state: State, declaration: Json, given: Json, *, limited: bool) -> NodeAnswer:
    """Carry out a command of an apply."""
    from tokenpeak.node.protocol import apply, requests

    if command == "observe":
        from tokenpeak.node.probe.observation import observe

        return observe(state, declaration, requests.parse(apply.ObserveRequest, given))
    if command == "confirm":
        from tokenpeak.node.production.change import confirm

        return confirm(state, requests.parse(apply.ConfirmRequest, given))
    from tokenpeak.node.production.change import change

    require_same(given)
    change_request = requests.parse(apply.ChangeRequest, given)
    apply.check_declared(declaration, change_request)
    return change(state, declaration, change_request, limited=limited)


def answered(
    command: str, folder: Path, request_source: str | None, *, limited: bool = False, for_apply: bool = False
) -> tuple[dict[str, Any], int]:
    """What a command prints, be it an answer or an error, and its exit status."""
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
    parser.add_argument("command", choices=COMMANDS)
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
    if arguments.command == "notify" and not arguments.limited:
        from tokenpeak.node.guard.notify import main as send_notification

        return send_notification()
    options = {"limited": arguments.limited, "for_apply": arguments.for_apply}
    if arguments.command == "lease":
        # It answers line by line from here on.
        print(flush=True)
    result, exit_status = answered(arguments.command, folder, source, **options)
    print(framed(result), end="", flush=True)
    return exit_status


if __name__ == "__main__":
    sys.exit(main())
