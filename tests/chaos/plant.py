"""`python -m tests.chaos.plant PATCH --faults "…"`: put a defect back into a clean clone, and see the oracle find it.

The clone is of what is committed; it gets an environment of its own by `make setup`, the patch by `git apply`, and
then runs the given faults. Exit status 0 when the oracle has found something, 1 when the defect went unseen.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenpeak import paths


def plant(patch: Path, clone: Path) -> None:
    """Make a clone of what is committed, with its environment and the defect."""
    subprocess.run(["git", "clone", "-q", str(paths.ROOT), str(clone)], check=True)
    subprocess.run(["git", "apply", str(patch.resolve())], cwd=clone, check=True)
    subprocess.run(["make", "-s", "setup"], cwd=clone, check=True)


def main() -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("patch", type=Path)
    parser.add_argument("--faults", required=True, help="as tests.chaos.run takes them")
    parser.add_argument("--runs", default="1")
    parser.add_argument("--pair", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-planted-"))
    try:
        clone = folder / "tokenpeak"
        plant(asked.patch, clone)
        argv = [".venv/bin/python", "-m", "tests.chaos.run", "--faults", asked.faults, "--runs", asked.runs]
        done = subprocess.run([*argv, *(["--pair"] if asked.pair else [])], cwd=clone, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{asked.patch.name}: {'found' if done.returncode == 1 else 'NOT FOUND'}")
    return 0 if done.returncode == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
