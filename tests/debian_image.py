"""Images of nothing but some Debian packages, made of this machine's own files: no registry and no mirror is asked."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

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
