"""Programs of root: what the declaration has root run or load must be in nobody else's hands.

`install` and `probe` say where it is not, and whoever runs or loads it looks again before each use. A file that is not
there yet counts as whoever may put it there.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
from pathlib import Path
from typing import Iterable, Sequence

from tokenpeak.node.machine import trust
from tokenpeak.node.machine.error import ScriptError

FIRST_LINE_BYTES = 512
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PASSING_ON = ("exec", "nohup", "setsid", "nice", "env", "command", ".", "source", *_SHELLS)
"""Words of a shell's command after which the program stands."""
_DEVICES = "/dev/"
_USER_OPTIONS = {"runuser": ("-u", "--user"), "sudo": ("-u", "--user"), "setpriv": ("--reuid",)}


def of_command(words: Sequence[str]) -> list[Path]:
    """Files that root runs for a command: its program, that of its first line, and the files that its words name.

    What it has another user run is that user's own.
    """
    if not words:
        return []
    program = shutil.which(words[0]) or words[0]
    files = [program] if program.startswith("/") else []
    if interpreter := interpreter_of(Path(program)) if files else None:
        files.append(str(interpreter))
    if other_user(words) is None:
        # `python script.py`, `--config=/opt/x.yml`: what is named by its path is run or loaded too.
        files += [named for word in words[1:] for named in (word, word.partition("=")[2]) if named.startswith("/")]
        if Path(program).name in _SHELLS:
            files += [named for text in words[1:] for named in _programs_of_shell(text)]
    return [Path(each) for each in files if not each.startswith(_DEVICES)]


def of_environment(env: Iterable[tuple[str, str]]) -> list[Path]:
    """The files and folders that code is loaded from by variables of the loader and of Python."""
    texts = [text for name, text in env if re.fullmatch("LD_.*|PYTHON.*|PATH", name)]
    return [Path(part) for text in texts for part in re.split("[: ]", text) if part.startswith("/")]


def problem(declared_as: str, files: Iterable[Path], way_out: str = "") -> str | None:
    """Where root would run or load what others can write, and what to do; None where it would not."""
    reason = danger(files) if os.geteuid() == 0 else None
    if reason is None:
        return None
    return (
        f"Root would run or load what {declared_as} names, and {reason}: whoever that is would be root. Let root alone "
        f"write there (chown, chmod){way_out}."
    )


def require(declared_as: str, files: Iterable[Path], way_out: str = "") -> None:
    """Raise ScriptError where root would run or load what others can write."""
    if wrong := problem(declared_as, files, way_out):
        raise ScriptError("rights", wrong)


def danger(files: Iterable[Path], uid: int = 0) -> str | None:
    """Why somebody else than root and `uid` could change one of these files, or put it there; None when nobody can."""
    return next(filter(None, (trust.changeable_by_others(path, uid) for path in files)), None)


def interpreter_of(program: Path) -> Path | None:
    """The program that a script's first line names; None for what is no script."""
    first = trust.read_foreign(program, FIRST_LINE_BYTES, follow=True).split(b"\n", 1)[0]
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    return Path(words[0]) if words and words[0].startswith("/") else None


def uid_of(user: str) -> int | None:
    """The user's number; None for one whom this node does not know."""
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def other_user(words: Sequence[str]) -> str | None:
    """The user, none of root's names, as whom a command has runuser, sudo, setpriv or su run the rest; None else."""
    if not words:
        return None
    name = Path(words[0]).name
    if name == "su":
        before = words[1 : words.index("-c")] if "-c" in words else words[1:]
        return next((word for word in before if uid_of(word) not in (None, 0)), None)
    for at, word in enumerate(words[1:], start=1):
        option, equals, value = word.partition("=")
        if option in _USER_OPTIONS.get(name, ()):
            user = (value if equals else words[at + 1] if at + 1 < len(words) else "").lstrip("#")
            return user if uid_of(user) not in (None, 0) else None
        if not word.startswith("-"):
            break
    return None


def _programs_of_shell(text: str) -> list[str]:
    """The programs that a shell's own text names by their paths, as far as they stand where a command begins."""
    programs = []
    for part in re.split(r"[;&|()\n]+", text):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        for word in words:
            if word.startswith("/"):
                programs.append(word)
            if not (word in _PASSING_ON or "=" in word or (word.startswith(("-", "/")) and Path(word).name in _SHELLS)):
                break
    return programs
