"""What must be so before anything of the declaration is run or read as this user: nobody else can change it.

`install` refuses where root would run the engine or the power meter's command from files that somebody else may write,
and where a file of secrets is open to others.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import Sequence

from tokenpeak.node import drain, environment, images, meters, notify, trust, version
from tokenpeak.node.answering import Answering
from tokenpeak.node.engine_builds import engine_builds
from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import Json

_MAPS_BYTES = 1 << 22


def check(declaration: Json) -> None:
    """Raise ScriptError with all that is wrong with the declared commands and files of secrets."""
    wrong = [
        *python_problems(),
        *tools_problems(declaration),
        *engine_problems(declaration),
        *power_command_problems(declaration),
        *answer_problems(declaration),
        *drain_problems(declaration),
        *notify_problems(declaration),
        *secret_problems(declaration),
        *allowlist_problems(declaration),
    ]
    if wrong:
        raise ScriptError("rights", " ".join(wrong))


def python_problems() -> list[str]:
    """Where root would run this script, now and after each boot, by a Python that others can write, and what to do."""
    if os.geteuid() != 0:
        return []
    library = str(Path(os.__file__).parent)
    loaded = [getattr(each, name, None) for each in [*sys.modules.values()] for name in ("__file__", "__cached__")]
    maps = trust.read_foreign(Path("/proc/self/maps"), _MAPS_BYTES, follow=False).decode(errors="replace")
    mapped = [line.split(None, 5)[5] for line in maps.splitlines() if line.count("/")]
    own = [str(each) for each in (*loaded, *mapped) if each and str(each).startswith(f"{library}/")]
    own += [each for each in mapped if "/libpython" in each]
    danger = _danger([Path(each) for each in (sys.executable, library, f"{library}/__pycache__", *sorted({*own}))])
    if danger is None:
        return []
    return [
        f"Root would run the node script by the Python {sys.executable}, and {danger}: whoever that is would be root. "
        "Name a Python that root alone can write, the system's say, in tokenpeak_python."
    ]


def tools_problems(declaration: Json) -> list[str]:
    """Where root would find its programs in a folder that others can write, and what to do."""
    tools = declaration.get("tools")
    danger = _danger([Path(str(tools)), *Path(str(tools)).glob("*")]) if tools and os.geteuid() == 0 else None
    if danger is None:
        return []
    return [f"Root would run programs of tokenpeak_tools, and {danger}: let root alone write there."]


def engine_problems(declaration: Json) -> list[str]:
    """Where root would run the engine, or ask it for its version, from what others can write, and what to do.

    An engine that is not there yet is the probe's to say.
    """
    user = (declaration.get("engine") or {}).get("user")
    builds = engine_builds(declaration).values()
    wrong = [images.rights_problem(build, str(user) if user else None) for build in builds if "image" in build]
    found = [problem for problem in wrong if problem]
    if os.geteuid() != 0 or (user and _uid(str(user)) != 0):
        return found
    commands = [build["command"] for build in builds if "image" not in build]
    return [*found, *(problem for command in commands for problem in _command_problems(command))]


def _command_problems(command: list[str]) -> list[str]:
    program = shutil.which(command[0])
    if program is None:
        return []
    interpreter = version.interpreter_of(Path(program)) or Path(program)
    looked_at = [Path(program), interpreter]
    for metadata in version.metadata_files(interpreter)[:1]:
        looked_at += [metadata, metadata.parent.parent / "vllm", metadata.parent.parent / "vllm" / "__init__.py"]
    # `python script.py`, `python -I /opt/engine.py`: what is named by its path is run too.
    looked_at += [Path(word) for word in command[1:] if word.startswith("/")]
    danger = _danger(looked_at)
    if danger is None:
        return []
    return [
        f"Root would run the engine {command[0]}, and {danger}: whoever that is would be root. Set "
        "tokenpeak_engine_user to a user of the engine's own, or let root alone write these files."
    ]


def power_command_problems(declaration: Json) -> list[str]:
    """Where root would run the power meter's command from what others can write, and what to do."""
    command = meters.declared_command(declaration)
    program = shutil.which(command[0]) if command and os.geteuid() == 0 else None
    if program is None:
        return []
    interpreter = version.interpreter_of(Path(program)) or Path(program)
    danger = _danger([Path(program), interpreter, *(Path(word) for word in command[1:] if word.startswith("/"))])
    if danger is None:
        return []
    return [
        f"Root would run {meters.DECLARED_AS} {command[0]}, and {danger}: whoever that is would be root. "
        "Let root alone write these files."
    ]


def answer_problems(declaration: Json) -> list[str]:
    """What is wrong with how production is asked, and where root would run or trust what others can write."""
    declared = declaration.get("production") or {}
    try:
        answering = Answering(declared)
    except ScriptError as error:
        return [error.text]
    wrong = []
    ca_file = declared.get("ca_file")
    if ca_file and not os.access(ca_file, os.R_OK):
        wrong.append(f"tokenpeak_production.ca_file {ca_file} cannot be read: name a file of PEM certificates.")
    if os.geteuid() != 0:
        return wrong
    program = shutil.which(answering.command[0]) if answering.command else None
    words = [program, *(word for word in answering.command[1:] if word.startswith("/")), ca_file]
    if danger := _danger([Path(word) for word in words if word]):
        wrong.append(
            f"Root would run or trust what tokenpeak_production names, and {danger}: whoever that is would be root, or "
            "could pass for production. Let root alone write these files."
        )
    return wrong


def drain_problems(declaration: Json) -> list[str]:
    """Where root would run commands of tokenpeak_drain that others can write, and what to do."""
    if os.geteuid() != 0:
        return []
    words = drain.programs(declaration.get("drain"))
    found = [Path(each) for word in words if (each := word if word.startswith("/") else shutil.which(word))]
    if danger := _danger(found):
        return [
            f"Root would run what tokenpeak_drain names, and {danger}: whoever that is would be root. Let root alone "
            "write these files."
        ]
    return []


def notify_problems(declaration: Json) -> list[str]:
    """What keeps the guard from notifying whom the inventory names, and where root would run what others can write."""
    receivers = declaration.get("notify") or []
    wrong = notify.problems(receivers, "node")
    folder = declaration.get("textfile_dir")
    if folder and not Path(str(folder)).is_dir():
        wrong.append(
            f"tokenpeak_textfile_dir {folder} is no folder here: name that of the node exporter's text-file collector."
        )
    if wrong or os.geteuid() != 0:
        return wrong
    for receiver in receivers:
        words = receiver.get("command") or []
        program = shutil.which(words[0]) if words else None
        if danger := _danger([Path(word) for word in (program, *words[1:]) if word and word.startswith("/")]):
            wrong.append(
                f"Root would run the command {words[0]} of tokenpeak_notify, and {danger}: whoever that is would be "
                "root. Let root alone write these files."
            )
    return wrong


def _danger(paths: Sequence[Path]) -> str | None:
    """Why somebody else than root could change one of these files; None when nobody can, or it is not there."""
    for path in paths:
        try:
            danger = trust.writable_by_others(path, 0)
        except OSError:
            continue
        if danger:
            return danger
    return None


def secret_problems(declaration: Json) -> list[str]:
    """The declared files of secrets that others may read or write, or that cannot be read."""
    named = {
        "tokenpeak_engine_env_file": (declaration.get("engine") or {}).get("env_file"),
        "tokenpeak_production.api_key_file": (declaration.get("production") or {}).get("api_key_file"),
    }
    wrong = []
    for key, path in named.items():
        try:
            trust.read_secret(path, key) if path else None
        except ScriptError as error:
            wrong.append(error.text)
    return wrong


def allowlist_problems(declaration: Json) -> list[str]:
    """What is wrong with the names that configs may set."""
    declared = (declaration.get("engine") or {}).get("env_allowed") or []
    return [f"{environment.KEY}: {wrong}." for wrong in environment.wrong_patterns(declared)]


def _uid(user: str) -> int | None:
    """The user's number; None for one whom this node does not know."""
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
