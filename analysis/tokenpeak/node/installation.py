"""What must be so before anything of the declaration is run or read as this user: nobody else can change it.

`install` refuses where root would run the engine from files that somebody else may write, and where a file of secrets
is open to others.
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from tokenpeak.node import environment, trust, version
from tokenpeak.node.state import Json
from tokenpeak.node.trouble import Trouble


def check(declaration: Json) -> None:
    """Raise Trouble with all that is wrong with the declared engine and files of secrets."""
    wrong = [*engine_problems(declaration), *secret_problems(declaration), *allowlist_problems(declaration)]
    if wrong:
        raise Trouble("rights", " ".join(wrong))


def engine_problems(declaration: Json) -> list[str]:
    """Where root would run the engine, or ask it for its version, from what others can write, and what to do.

    An engine that is not there yet is the probe's to say.
    """
    declared = declaration.get("engine") or {}
    command = [str(word) for word in declared.get("command") or []]
    user = declared.get("user")
    if not command or os.geteuid() != 0 or (user and _uid(str(user)) != 0):
        return []
    program = shutil.which(command[0])
    if program is None:
        return []
    interpreter = version.interpreter_of(Path(program)) or Path(program)
    looked_at = [Path(program), interpreter]
    for metadata in version.metadata_files(interpreter)[:1]:
        looked_at += [metadata, metadata.parent.parent / "vllm", metadata.parent.parent / "vllm" / "__init__.py"]
    # `python script.py`, `python -I /opt/engine.py`: what is named by its path is run too.
    looked_at += [Path(word) for word in command[1:] if word.startswith("/")]
    for path in looked_at:
        try:
            danger = trust.writable_by_others(path, 0)
        except OSError:
            continue
        if danger:
            return [
                f"Root would run the engine {command[0]}, and {danger}: whoever that is would be root. Set "
                "tokenpeak_engine_user to a user of the engine's own, or let root alone write these files."
            ]
    return []


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
        except Trouble as trouble:
            wrong.append(trouble.text)
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
