"""Rights: what must be so before root runs or reads what is declared, and before a restricted user changes production.

`install` refuses where root would run or load what somebody else may write, and where a file of secrets is open to
others; what root runs is looked at again before each use. Who may change production through root's command of applies
chooses the engine's arguments, and so acts as production's user. Hence production must have a user of its own, and what
the change starts is compared as its manager will start it, with every word that stays in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from tokenpeak.node.engine import builds, images, installed, serving
from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.engine.container import is_numbered
from tokenpeak.node.engine.engine import read_environment_file
from tokenpeak.node.guard import notify
from tokenpeak.node.machine import process_files, trust
from tokenpeak.node.machine.containers import FORWARDERS
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import program
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_value
from tokenpeak.node.probe import meters
from tokenpeak.node.production import drain
from tokenpeak.node.production.answering import Answering
from tokenpeak.node.production.manager import Command, Manager, checksum
from tokenpeak.node.production.managers import make_manager

_MAPS_BYTES = 1 << 22
_ROOT_NAMES = ("", "root")


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
    return [f"{builds.ENV_ALLOWED}: {wrong}." for wrong in builds.wrong_variables(declared)]


def _listed(problem: str | None) -> list[str]:
    return [problem] if problem else []


def user_problem(manager: Manager, described: Json, command: Command) -> str | None:
    """Why a restricted user may not have this definition start this command; None where it has a user of its own.

    An image's own user is none: a tag means another image by and by, and that may be root's. Nor is a name that an
    image gives its meaning.
    """
    if os.geteuid() != 0:
        return None
    user = manager.user(described, command)
    is_of_node = manager.is_node_user
    if user is not None and (not _is_root(user) if is_of_node else is_numbered(user)):
        return None
    named = "names no user" if user is None else f"names the user {shown_value(user)}"
    if user is not None and not is_of_node:
        named += ", which is no number other than 0 such as 1000:1000 (whom a name means its image decides),"
    return (
        f"Production's definition ({manager.place(described['own'])}) {named} for what this change starts, and a "
        "restricted user starts nothing that may be root's: let the definition itself name a user of production's own "
        f"({manager.USER_AS}), or let an administrator do it."
    )


def require_own_program(manager: Manager, described: Json, was: Command, new: Command) -> None:
    """Raise ScriptError where an edit has production run a program that others than root and its user may write.

    An administrator's edits too: he chose what was measured, and not that its owner becomes production's user. What
    stays as it is was chosen before, and a program in an image is no file of this machine.
    """
    if os.geteuid() != 0 or manager.is_in_image:
        return
    words = manager.shown_words(new)[: new.program]
    files = trust.files_of_environment((name, text) for name, text in new.env.items() if was.env.get(name) != text)
    if words != manager.shown_words(was)[: was.program]:
        files += installed.code_files(words)
    user = manager.user(described, new)
    is_root = user is None or _is_root(user)
    uid = 0 if is_root else trust.uid_of(user or "")
    danger = trust.danger_of(files, uid or 0)
    if danger is not None:
        raise ScriptError(
            "rights",
            f"{'Root' if is_root else f'User {user}'} would run {shown_command(words)} as production, and {danger}: "
            "whoever that is would act as production's user. Let root"
            f"{' alone' if is_root else f' or {user} alone'} write there (chown, chmod), then apply.",
        )


def _is_root(user: str) -> bool:
    name = user.partition(":")[0].strip()
    try:
        return int(name) == 0
    except ValueError:
        return name in _ROOT_NAMES or trust.uid_of(name) == 0


def root_problem(manager: Manager) -> str | None:
    """Why a restricted user may not change this production: it runs as root, or nobody sees as whom; None else."""
    if os.geteuid() != 0:
        return None
    is_member = manager.members()
    # Who listens at its url proves nothing: that may be a proxy of another user in front of root's own production.
    pids = [] if is_member is None else [pid for pid in process_files.pids() if is_member(pid)]
    if not pids:
        return (
            "Which user production runs as is not seen on this node, and a restricted user changes none that may be "
            "root's: let an administrator apply, or have a unit, a container or a section of supervisord run it as a "
            "user of its own."
        )
    of_root = [
        pid for pid in pids if 0 in process_files.user_ids(pid) and Path(program(pid) or "").name not in FORWARDERS
    ]
    if not of_root:
        return None
    return (
        f"Production runs as root (process {of_root[0]}), and whoever chooses its arguments acts as its user: give "
        "production a user of its own (User= of its unit, user of its section, service or container), or let an "
        "administrator apply."
    )


def require_permitted_change(declaration: Json, manager: Manager, described: Json, new: Command) -> None:
    """Raise ScriptError for a change that a restricted user may not make of the described production."""
    was = manager.command(described)
    if problem := root_problem(manager) or user_problem(manager, described, new):
        raise ScriptError("refused", problem)
    declared_builds = engine_builds(declaration).values()
    own, started = (manager.shown_words(each)[: each.program] for each in (was, new))
    if started != own and started not in [build["command"] for build in declared_builds if "image" not in build]:
        raise ScriptError(
            "refused",
            f"The apply command starts production's own program or a declared build, not {shown_command(started)}.",
        )
    if new.image not in [was.image, *(build.get("image") for build in declared_builds)]:
        raise ScriptError("refused", f"The apply command takes a declared build's image, not {shown_value(new.image)}.")
    changed = sorted(name for name in {*was.env, *new.env} if was.env.get(name) != new.env.get(name))
    for word in new.words[: new.program]:
        # `env ${X} serve`: what X is would choose the program.
        used = {name for name in changed if re.search(r"[$%]", word) and name in word}
        if used:
            raise ScriptError("refused", f"{', '.join(used)} is part of production's program, and stays as it is.")
    _require_environment(declaration, new, changed)


def require_permitted_rollback(manager: Manager, described: Json, applied: Json) -> None:
    """Raise ScriptError for a rollback of the `applied` record that a restricted user may not make.

    It writes what was read before that apply, of a file or a template the whole: what an administrator has changed
    since, production's user say, would be as it was.
    """
    before = applied["apply"]["was"]
    problem = root_problem(manager) or user_problem(manager, before, manager.command(before))
    if problem is None and checksum(described) != applied["apply"]["new_sha256"]:
        problem = (
            f"Production's definition ({manager.place(described['own'])}) is not as apply {applied['apply']['id']} "
            "left it, and its rollback would undo what was changed there since: let an administrator roll back."
        )
    if problem is not None:
        raise ScriptError("refused", problem)


def _require_environment(declaration: Json, new: Command, changed: list[str]) -> None:
    """Raise ScriptError for a variable that neither a config may set nor the inventory sets so."""
    engine = declaration.get("engine") or {}
    allowed = builds.allowed_variables(declaration)
    declared = {str(name): str(text) for name, text in (engine.get("env") or {}).items()}
    for name in changed:
        if name in declared and new.env.get(name) in (None, declared[name]):
            continue
        if wrong := builds.why_not_set(name, allowed, new.env.get(name, "")):
            raise ScriptError("refused", f"The change request is refused, and nothing was touched: {wrong}.")
