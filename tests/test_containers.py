"""The controller in containers: the wheel where there is nothing but Python and pip, and the Dockerfile with Compose.

The images are this machine's own Debian packages; the network is the machine's, as the daemon makes none.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.docker_daemon import Daemon, daemon, why_no_docker

from built_wheel import build_wheel
from tokenpeak import paths

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker")]

ARCHIVE = paths.LANDSCAPES / "search-h100.tar.zst"
USER = 1000
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
NETWORK = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
POSTGRES_PACKAGES = ("postgresql-15", "util-linux")
ENTRY = """#!/bin/bash
# What the published image does at its first start.
set -e
bin=/usr/lib/postgresql/15/bin data=/var/lib/postgresql/data
mkdir -p $data /var/run/postgresql && chown -R postgres $data /var/run/postgresql
as() { setpriv --reuid postgres --clear-groups "$@"; }
if [ ! -e $data/PG_VERSION ]; then
  echo "$POSTGRES_PASSWORD" >/tmp/password && chmod 644 /tmp/password
  as $bin/initdb -D $data -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 -E UTF8 --locale=C.UTF-8
  as $bin/pg_ctl -D $data -o "-c listen_addresses=" -w start
  PGPASSWORD=$POSTGRES_PASSWORD $bin/createdb -h /var/run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB" || true
  as $bin/pg_ctl -D $data -w stop
fi
exec setpriv --reuid postgres --clear-groups $bin/postgres -D $data -c listen_addresses=127.0.0.1
"""


BASE = (
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "sed",
    "libc-bin",
    "libstdc++6",
    "netbase",
    "tzdata",
)
"""What the published images of Debian have, as far as it is used here."""
PYTHON = ("python3", "python3-venv", "python3-pip", "ca-certificates")
"""What a user has who has Python and pip."""
_FOLDERS = ("proc", "sys", "dev", "tmp", "run", "root", "home", "var/tmp", "etc", "usr/local/bin")
_LINKS = ("bin", "sbin", "lib", "lib64")
_MADE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/ld.so.cache", "/etc/debian_version")
"""Files that packages make when they are configured."""
PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


def missing_packages(names: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed here."""
    return [name for name in names if not _installed(name)]


def root_of(names: Iterable[str]) -> bytes:
    """A tar file of the root file system that these packages, and all that they depend on, make up."""
    files = {path for package in _closure([*BASE, *names]) for path in _files(package)}
    # Docker makes a folder that a tar file leaves out, and lets nobody but root enter it.
    listed = sorted(files | {parent.as_posix() for path in files for parent in Path(path).parents[:-1]})
    with tempfile.TemporaryDirectory() as made, tempfile.NamedTemporaryFile("w") as chosen:
        root = Path(made)
        root.chmod(0o755)
        for name in _FOLDERS:
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for name in _LINKS:
            if Path("/", name).is_symlink():
                (root / name).symlink_to(Path("/", name).readlink())
        (root / "etc" / "passwd").write_text(PASSWD)
        (root / "etc" / "group").write_text(GROUP)
        for name in _MADE:
            if Path(name).is_file():
                (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, root / name.lstrip("/"))
        # Docker refuses a tar file that has a path twice.
        missing = [name for path in listed if not os.path.lexists(root / (name := path.lstrip("/")))]
        chosen.write("".join(f"{name}\n" for name in missing))
        chosen.flush()
        packed = root.with_suffix(".tar")
        try:
            subprocess.run(["tar", "-C", made, "-cf", str(packed), "."], check=True)
            argv = ["tar", "-C", "/", "--no-recursion", "--ignore-failed-read", "-rf", str(packed), "-T", chosen.name]
            subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
            return packed.read_bytes()
        finally:
            packed.unlink(missing_ok=True)


def _installed(name: str) -> bool:
    done = subprocess.run(
        ["dpkg-query", "-Wf", "${db:Status-Status}", name], capture_output=True, text=True, check=False
    )
    return done.stdout.startswith("installed")


def _closure(names: Iterable[str]) -> set[str]:
    """The packages with all that they depend on, as far as it is installed."""
    done = subprocess.run(
        ["dpkg-query", "-Wf", "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    needs = {name: needed for name, _, needed in rows}
    providers = {word.split()[0]: name for name, provided, _ in rows for word in provided.split(",") if word.strip()}
    found: set[str] = set()
    left = list(names)
    while left:
        asked = left.pop()
        name = asked if asked in needs else providers.get(asked, "")
        if not name or name in found:
            continue
        found.add(name)
        for alternatives in needs[name].split(","):
            words = [word.split()[0].partition(":")[0] for word in alternatives.split("|") if word.strip()]
            there = [word for word in words if word in needs or word in providers]
            left += there[:1]
    return found


def _files(package: str) -> list[str]:
    done = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True, check=True)
    paths = [Path(line) for line in done.stdout.splitlines() if line.startswith("/") and line != "/."]
    # /bin is /usr/bin for some years, but not to the lists of packages. Documents are no part of what runs.
    real = [(path.parent.resolve() / path.name).as_posix() for path in paths]
    return [path for path in real if not path.startswith("/usr/share/doc/")]


def need(*packages: str) -> None:
    """Skip a test where one of Debian's packages that its images are made of, or that it runs, is missing."""
    if missing := missing_packages(packages):
        pytest.skip(f"{', '.join(missing)} not installed")


def pip_settings() -> dict[str, str]:
    """What makes pip find its index from this machine: variables, and the index of pip's own configuration."""
    kept = {name: os.environ[name] for name in NETWORK if name in os.environ}
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ({"PIP_INDEX_URL": configured} if configured else {}) | kept | {"PIP_CERT": CERTIFICATES}


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A daemon with `python:1`, an image of nothing but Python and pip."""
    if reason := why_no_docker():
        pytest.skip(reason)
    need(*PYTHON)
    with daemon() as made:
        made.docker("import", "-", "python:1", given=root_of(PYTHON))
        yield made


@dataclass
class Container:
    """A container in which a user types."""

    docker: Daemon
    name: str
    said: dict[str, str] = field(default_factory=dict)

    def type(self, line: str, status: int = 0, user: int = USER) -> str:
        """Type a line in the home; it must end with this status. Returns both streams."""
        argv = ["docker", "-H", self.docker.host, "exec", "--user", str(user), self.name, "bash", "-c", line]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(f"$ {line}  # {done.returncode}\n{done.stdout[-1500:]}", flush=True)
        assert status == done.returncode, f"{line}\n{done.stdout[-4000:]}"
        assert "Traceback" not in done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def box(docker: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Container:
    """A container of `python:1` with a user, the wheel and an archive in its home."""
    given = tmp_path_factory.mktemp("given")
    wheel = build_wheel(given)
    shutil.copy(ARCHIVE, given)
    # The user of the container is nobody here.
    given.chmod(0o755)
    made = Container(docker, "box")
    environment = {"HOME": "/home/me", "PATH": "/home/me/venv/bin:/usr/bin:/bin", **pip_settings()}
    options = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    options += ["-v", f"{given}:/given:ro", "-w", "/home/me", "--name", made.name]
    docker.docker("run", "-d", "--init", "--network", "host", *options, "python:1", "sleep", "infinity")
    made.type(f"echo me:x:{USER}:{USER}::/home/me:/bin/bash >>/etc/passwd; chown {USER} /home/me", user=0)
    made.type("python3 -m venv venv")
    made.type(f"pip install -q --no-cache-dir --no-compile /given/{wheel.name}")
    return made


def test_wheel_with_nothing_but_python_and_pip(box: Container) -> None:
    """Install, init, demo, check, report on an archive, and a load against the demonstration's server."""
    box.type("tokenpeak init mine")
    said = box.type("cd mine && tokenpeak demo")
    box.type("cd mine && tokenpeak check")
    box.type(f"cd mine && tokenpeak report /given/{ARCHIVE.name} --output other")
    node = json.loads(box.type("cat .local/state/tokenpeak/nodes/sim-a100/node.json"))
    asked = "--input-tokens 16 --output-tokens 8 --concurrency 2 --requests 8 --format json"
    measured = json.loads(box.type(f"tokenpeak load {node['production']['url']} {asked} 2>/dev/null"))
    end = json.loads(box.type("cat mine/results/*/end.json"))
    box.type("cd mine && tokenpeak demo --end")

    assert "completed" == end["status"]
    assert "make " not in said
    assert "NVIDIA H100" in box.type("cat mine/other/index.html")
    assert 8 == measured["summary"]["requests_ok"]


@dataclass(frozen=True, kw_only=True)
class Compose:
    """`docker-compose` with the project's file, on the machine's network."""

    docker: Daemon
    folder: Path
    password: str
    port: int

    def run(self, *words: str) -> str:
        """What it prints; it must end with status 0."""
        argv = ["docker-compose", "-p", "controller", "-f", str(paths.ROOT / "compose.yml")]
        argv += ["-f", str(self.folder / "network.yml"), *words]
        given = {
            "DOCKER_HOST": self.docker.host,
            "POSTGRES_PASSWORD": self.password,
            "POSTGRES_HOST": f"127.0.0.1:{self.port}",
            "WORK": str(self.folder / "work"),
            "SSH": str(self.folder / "ssh"),
            "UID": str(USER),
        }
        done = subprocess.run(
            argv,
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"$ docker-compose {' '.join(words)}  # {done.returncode}\n{done.stdout[-1500:]}", flush=True)
        assert 0 == done.returncode, done.stdout[-4000:]
        return done.stdout


@pytest.fixture
def compose(docker: Daemon, tmp_path: Path) -> Iterator[Compose]:
    """The project's Compose file, with images of Debian's packages as the bases that a registry would give."""
    need("docker-compose", "openssh-client", "tini", *POSTGRES_PACKAGES)
    docker.docker("import", "-", "base:1", given=root_of([*PYTHON, "openssh-client"]))
    context = tmp_path / "postgres"
    context.mkdir()
    (context / "root.tar").write_bytes(root_of(POSTGRES_PACKAGES))
    (context / "entry").write_text(ENTRY)
    (context / "entry").chmod(0o755)
    (context / "Dockerfile").write_text(
        "FROM scratch\nADD root.tar /\nCOPY entry /entry\n"
        "RUN echo postgres:x:70:70::/var/lib/postgresql:/bin/bash >>/etc/passwd\n"
        'ENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin\nENTRYPOINT ["/entry"]\n'
    )
    docker.docker("build", "-q", "--network", "host", "-t", "postgres:18", str(context))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = {"BASE": "base:1", "PIP_CERT": CERTIFICATES}
    network = {
        "postgres": {"network_mode": "host", "environment": {"PGPORT": port}},
        "tokenpeak": {"network_mode": "host", "build": {"network": "host", "args": arguments}},
    }
    (tmp_path / "network.yml").write_text(yaml.safe_dump({"services": network}))
    for name in ("work", "ssh"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, USER, USER)
    made = Compose(docker=docker, folder=tmp_path, password=secrets.token_hex(8), port=port)
    yield made
    made.run("down", "--volumes")


def test_dockerfile_and_compose(compose: Compose) -> None:
    """The image is built, the demonstration ends in a site of this folder, and Postgres has its trials."""
    compose.run("build", "tokenpeak")
    compose.run("run", "--rm", "tokenpeak", "init")
    compose.run("run", "--rm", "tokenpeak", "demo")
    counted = compose.run("run", "--rm", "tokenpeak", "sql", "--format", "csv", "SELECT count(*) FROM v_trials")
    work = compose.folder / "work"
    [archive] = [path.parent for path in work.glob("results/*/sweep.json")]
    trials = len(list((archive / "trials").glob("*.json")))

    assert "completed" == json.loads((archive / "end.json").read_text())["status"]
    assert str(trials) in counted.splitlines()
    assert (work / "site" / "build" / archive.name / "ranking.html").is_file()
    assert USER == archive.stat().st_uid
