"""Rights: what must be so before anything of the declaration is run or read as this user: nobody else can change it.

`install` refuses where root would run or load what somebody else may write, and where a file of secrets is open to
others; what root runs is looked at again before each use.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tokenpeak.node.engine import images, installed, serving
from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.engine.engine import read_environment_file
from tokenpeak.node.guard import notify
from tokenpeak.node.machine import environment, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.probe import meters
from tokenpeak.node.production import drain
from tokenpeak.node.production.answering import Answering
from tokenpeak.node.production.managers import make_manager

_MAPS_BYTES = 1 << 22


def check(declaration: Json, state: State) -> None:
    """Raise ScriptError with all that is wrong with the declared commands and files of secrets."""
    wrong = [
        *python_problems(),
        *tools_problems(declaration),
        *engine_problems(declaration),
        *_listed(meters.rights_problem(declaration)),
        *production_problems(declaration, state),
        *drain_problems(declaration, state),
        *notify_problems(declaration),
        *secret_problems(declaration),
        *allowlist_problems(declaration),
    ]
    if wrong:
        raise ScriptError("rights", " ".join(dict.fromkeys(wrong)))


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
    own = [sys.executable, library, f"{library}/__pycache__", *sorted({*own})]
    danger = trust.danger_of(map(Path, own))
    if danger is None:
        return []
    return [
        f"Root would run the node script by the Python {sys.executable}, and {danger}: whoever that is would be root. "
        "Name a Python that root alone can write, the system's say, in tokenpeak_python."
    ]


def tools_problems(declaration: Json) -> list[str]:
    """Where root would find its programs in a folder that others can write, and what to do."""
    tools = declaration.get("tools")
    if not tools or os.geteuid() != 0:
        return []
    danger = trust.danger_of([Path(str(tools)), *Path(str(tools)).glob("*")])
    if danger is None:
        return []
    return [f"Root would run programs of tokenpeak_tools, and {danger}: let root alone write there."]


def engine_problems(declaration: Json) -> list[str]:
    """Where root would run the engine, or ask it for its version, from what others can write, and what to do.

    An engine that is not there yet is the probe's to say.
    """
    return [problem for build in engine_builds(declaration).values() for problem in build_problems(declaration, build)]


def build_problems(declaration: Json, build: Json) -> list[str]:
    """The same of one build."""
    user = (declaration.get("engine") or {}).get("user")
    if "image" in build:
        return _listed(images.rights_problem(build, str(user) if user else None))
    if os.geteuid() != 0 or (user and trust.uid_of(str(user)) != 0):
        return []
    return _command_problems(build["command"])


def _command_problems(command: list[str]) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    danger = trust.danger_of(installed.code_files(command))
    if danger is None:
        return []
    return [
        f"Root would run the engine {command[0]}, and {danger}: whoever that is would be root. Set "
        "tokenpeak_engine_user to a user of the engine's own, or let root alone write these files."
    ]


def production_problems(declaration: Json, state: State) -> list[str]:
    """The problem with how production is asked, and where root would run, load or trust what others can write."""
    declared = declaration.get("production") or {"manager": "none"}
    ca_file = declared.get("ca_file")
    wrong = []
    if ca_file and not os.access(ca_file, os.R_OK):
        wrong.append(f"tokenpeak_production.ca_file {ca_file} cannot be read: name a file of PEM certificates.")
    try:
        make_manager(declared, state)
        Answering(declared)
    except ScriptError as error:
        wrong.append(error.text)
    return wrong


def drain_problems(declaration: Json, state: State) -> list[str]:
    """Where root would run commands of tokenpeak_drain that others can write, and what to do."""
    try:
        drain.drain_of(declaration.get("drain"), declaration.get("production") or {}, state)
    except ScriptError as error:
        return [error.text] if error.code == "rights" else []
    return []


def notify_problems(declaration: Json) -> list[str]:
    """Problems of notifying whom the inventory names, and where root would run what others can write."""
    receivers = declaration.get("notify") or []
    wrong = notify.problems(receivers, "node")
    folder = declaration.get("textfile_dir")
    if folder and not Path(str(folder)).is_dir():
        wrong.append(
            f"tokenpeak_textfile_dir {folder} is no folder here: name that of the node exporter's text-file collector."
        )
    return wrong


def secret_problems(declaration: Json) -> list[str]:
    """The declared files of secrets that others may read or write, or that cannot be read."""
    wrong = []
    for look in (
        lambda: read_environment_file((declaration.get("engine") or {}).get("env_file")),
        lambda: serving.key_from_file((declaration.get("production") or {}).get("api_key_file")),
    ):
        try:
            look()
        except ScriptError as error:
            wrong.append(error.text)
    return wrong


def allowlist_problems(declaration: Json) -> list[str]:
    """The problem with the names that configs may set."""
    declared = (declaration.get("engine") or {}).get("env_allowed") or []
    return [f"{environment.KEY}: {wrong}." for wrong in environment.wrong_patterns(declared)]


def _listed(problem: str | None) -> list[str]:
    return [problem] if problem else []
