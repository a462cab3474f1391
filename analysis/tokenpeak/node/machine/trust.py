"""Trust: what this script reads, runs or keeps must be in the hands of its own user or root.

A path is followed as the kernel follows it, links included, and each folder on the way is looked at: whoever may write
one of them may put something else in place of what lies below. A folder with the sticky bit, such as /tmp, lets
everybody add entries but nobody replace another's, so it is no danger to an entry whose own owner is trusted.

What the declaration has root run or load must be in nobody else's hands. `install` and `probe` say where it is not, and
whoever runs or loads it looks again before each use. A file that is not there yet counts as whoever may put it there.
"""

from __future__ import annotations

import errno
import grp
import hashlib
import os
import pwd
import re
import shlex
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Iterator, Sequence, Tuple

from tokenpeak.node.machine.error import ScriptError

OTHERS_WRITE = 0o022
OTHERS_ANY = 0o077
DIGEST_BYTES = 1 << 30
ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")
LINKS = 40
"""As many as the kernel follows."""

Step = Tuple[Path, os.stat_result]
FIRST_LINE_BYTES = 512
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PASSING_ON = ("exec", "nohup", "setsid", "nice", "env", "command", ".", "source", *_SHELLS)
"""Words of a shell's command after which the program stands."""
_DEVICES = "/dev/"
_USER_OPTIONS = {"runuser": ("-u", "--user"), "sudo": ("-u", "--user"), "setpriv": ("--reuid",)}


def steps(path: Path) -> Iterator[Step]:
    """Each file, folder and link that the kernel meets on its way to `path`, from / on; raises OSError as it does."""
    current = Path("/")
    yield current, current.lstat()
    pending = [part for part in reversed(str(path.absolute()).split("/")) if part]
    links = 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current = current.parent
            continue
        following = current / part
        facts = following.lstat()
        yield following, facts
        if not stat.S_ISLNK(facts.st_mode):
            current = following
            continue
        links += 1
        if links > LINKS:
            raise OSError(f"too many links on the way to {path}")
        target = os.readlink(following)
        if target.startswith("/"):
            current = Path("/")
        pending.extend(reversed(target.split("/")))


def writable_by_others(path: Path, uid: int) -> str | None:
    """Why somebody else than root and `uid` could change what `path` is; None when nobody can.

    Raises OSError where a part of the path cannot be looked at.
    """
    return _danger(list(steps(path)), uid)


def changeable_by_others(path: Path, uid: int) -> str | None:
    """Why somebody else than root and `uid` could change what `path` is, or put something there; None when nobody can.

    What cannot be looked at to its end is judged by what is on the way to it.
    """
    way: list[Step] = []
    with suppress(OSError, ValueError):
        way.extend(steps(path))
    return _danger(way, uid)


def led_elsewhere(path: Path, uid: int) -> str | None:
    """Why somebody else than root and `uid` could lead `path` elsewhere; None when nobody can.

    It may be missing, and is then made by who is first where everybody may add an entry. Raises OSError as above.
    """
    way, is_there = _way(path)
    return _danger(way, uid, is_entered=not is_there)


def _way(path: Path) -> tuple[list[Step], bool]:
    """The steps to a path as far as they are there, and whether all are."""
    way: list[Step] = []
    try:
        way.extend(steps(path))
    except FileNotFoundError:
        return way, False
    return way, True


def _danger(way: Sequence[Step], uid: int, is_entered: bool = False) -> str | None:
    """The first step of a path that others than root and `uid` may change, and why; None where there is none.

    With `is_entered` something below the last step is meant.
    """
    for number, (step, facts) in enumerate(way, start=1):
        if facts.st_uid not in (0, uid):
            return f"{step} belongs to user {_user_name(facts.st_uid)}"
        if stat.S_ISLNK(facts.st_mode):
            continue
        sticky = stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX
        if sticky and (is_entered or number < len(way)):
            continue
        if others_write(step, facts, uid):
            by = ", and an access list: see getfacl" if has_access_list(step) else ""
            return f"{step} can be written by others (mode {stat.S_IMODE(facts.st_mode):o}{by})"
    return None


def others_write(place: Path, facts: os.stat_result, uid: int) -> bool:
    """Whether the mode of the file or folder there lets others than root and its owner `uid` write to it.

    With an access list, its bits for the group are the most that anybody on the list may do.
    """
    if not facts.st_mode & 0o020:
        return bool(facts.st_mode & 0o002)
    return bool(facts.st_mode & 0o002) or not _is_own_group(facts.st_gid, uid) or has_access_list(place)


def has_access_list(place: Path) -> bool:
    """Whether users or groups of a list have rights to a file or folder, or will have to what is made in it."""
    if not hasattr(os, "getxattr"):
        return False
    for name in ACCESS_LISTS:
        try:
            os.getxattr(place, name)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP, errno.ENOSYS):
                continue
        return True
    return False


def keeper(folder: Path, as_entry: bool = False) -> str | None:
    """The one user who may change what a folder holds, as whom it is changed; None where this user or root may.

    Of a folder that is not there, what is on the way to it counts, and so it does `as_entry`: who may lead to another
    folder, whoever may write in this one. Raises ScriptError where several users may, for
    then nobody's rights are the right ones.
    """
    if os.geteuid() != 0:
        return None
    try:
        way, is_there = _way(folder)
    except OSError as error:
        raise ScriptError("rights", f"{folder} cannot be looked at: {error}.") from error
    if as_entry and is_there:
        way = way[:-1]
    owners = {facts.st_uid for _, facts in way} - {0}
    uid = owners.pop() if len(owners) == 1 else 0
    if danger := _danger(way, uid, is_entered=as_entry and is_there):
        raise ScriptError(
            "rights",
            f"Root changes nothing in {folder}, where several users could lead it elsewhere: {danger}. Take that right "
            "away (chmod, chown), or move the file to a folder that root or its one user alone may write.",
        )
    if uid and _user_name(uid) == str(uid):
        raise ScriptError("rights", f"{folder} belongs to user {uid}, whom this node does not know: give it to one.")
    return _user_name(uid) if uid else None


def _is_own_group(gid: int, uid: int) -> bool:
    """Whether nobody but the user is in a group, as systems make one for each user; never for root."""
    if uid == 0:
        return False
    try:
        user = pwd.getpwuid(uid)
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return False
    others = [account for account in pwd.getpwall() if account.pw_gid == gid and account.pw_uid != uid]
    return user.pw_gid == gid and members <= {user.pw_name} and not others


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_own(path: Path, forbidden: int, limit_bytes: int, follow: bool = True) -> bytes:
    """A file's content when its owner is this user (or root) and no bit of `forbidden` is in its mode.

    The very file that is read is the one that is looked at. A pipe or a device is no file, nor is a link unless
    `follow`. Raises ScriptError that says what to do, OSError where nothing can be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ScriptError("rights", f"{path} is no regular file: put one there.")
        if facts.st_uid not in (0, os.geteuid()):
            raise ScriptError(
                "rights",
                f"{path} belongs to user {_user_name(facts.st_uid)}, who could change it: "
                f"`chown {_user_name(os.geteuid())} {path}` when you know what it says.",
            )
        mode = stat.S_IMODE(facts.st_mode)
        if mode & forbidden:
            verb = "written" if mode & forbidden & OTHERS_WRITE else "read"
            raise ScriptError("rights", f"{path} can be {verb} by others (mode {mode:04o}): `chmod 0600 {path}`.")
        if facts.st_size > limit_bytes:
            raise ScriptError("rights", f"{path} has {facts.st_size} bytes, more than {limit_bytes}: look at it.")
        return stream.read(limit_bytes + 1)


def read_secret(path: str | Path, declared_as: str) -> str:
    """The text of a file that holds secrets: its owner root or this user, and not a bit of its mode for others.

    Nor may others lead its path elsewhere: to a file of root's, which would be sent or started with as if it were this.
    """
    try:
        # The file itself is looked at when it is open.
        if danger := _danger(list(steps(Path(path)))[:-1], os.geteuid(), is_entered=True):
            raise ScriptError(
                "rights",
                f"{declared_as} is {path}, which others could lead to another file: {danger}. Move it to a folder "
                f"that {_user_name(os.geteuid())} alone may write, /etc/tokenpeak say, or take that right away (chmod, "
                "chown).",
            )
        return read_own(Path(path), OTHERS_ANY, 1 << 20).decode()
    except OSError as error:
        raise ScriptError("rights", f"{declared_as} is {path}, which cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ScriptError("rights", f"{declared_as} is {path}, which is no text: {error}.") from error


def read_foreign(path: Path, limit_bytes: int, follow: bool) -> bytes:
    """The beginning of a file that others may have made; empty where it is no regular file or cannot be read."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(limit_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def read_end(path: Path, limit_bytes: int, begin: int = 0) -> bytes:
    """The last part of a file, of what lies beyond its first `begin` bytes; empty where it cannot be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(begin, size - limit_bytes))
            return stream.read(limit_bytes)
    except OSError:
        return b""


def digest_of(path: Path) -> str | None:
    """`sha256:…` of a file's content, links followed; None where it is no regular file, too large or not readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    digest = hashlib.sha256()
    try:
        status = os.fstat(descriptor)
        # A file without end is made by one call, and would be read for days.
        if not stat.S_ISREG(status.st_mode) or status.st_size > DIGEST_BYTES:
            return None
        for _ in range(DIGEST_BYTES >> 20):
            block = os.read(descriptor, 1 << 20)
            if not block:
                break
            digest.update(block)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return f"sha256:{digest.hexdigest()}"


def files_of_command(words: Sequence[str]) -> list[Path]:
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


def files_of_environment(env: Iterable[tuple[str, str]]) -> list[Path]:
    """The files and folders that code is loaded from by variables of the loader and of Python."""
    texts = [text for name, text in env if re.fullmatch("LD_.*|PYTHON.*|PATH", name)]
    return [Path(part) for text in texts for part in re.split("[: ]", text) if part.startswith("/")]


def danger_to_root(declared_as: str, files: Iterable[Path], way_out: str = "") -> str | None:
    """Where root would run or load what others can write, and what to do; None where it would not."""
    reason = danger_of(files) if os.geteuid() == 0 else None
    if reason is None:
        return None
    return (
        f"Root would run or load what {declared_as} names, and {reason}: whoever that is would be root. Let root alone "
        f"write there (chown, chmod){way_out}."
    )


def require_only_root(declared_as: str, files: Iterable[Path], way_out: str = "") -> None:
    """Raise ScriptError where root would run or load what others can write."""
    if wrong := danger_to_root(declared_as, files, way_out):
        raise ScriptError("rights", wrong)


def danger_of(files: Iterable[Path], uid: int = 0) -> str | None:
    """Why somebody else than root and `uid` could change one of these files, or put it there; None when nobody can."""
    return next(filter(None, (changeable_by_others(path, uid) for path in files)), None)


def interpreter_of(program: Path) -> Path | None:
    """The program that a script's first line names; None for what is no script."""
    first = read_foreign(program, FIRST_LINE_BYTES, follow=True).split(b"\n", 1)[0]
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
