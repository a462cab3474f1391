"""`python -m tests.chaos.plant`: put each defect of `defects/` back into a clean clone, and see the oracle find it.

The clone is of what is committed; it gets an environment of its own by `make setup`, the patch by `git apply`, and
then runs the faults under which the defect shows. Exit status 0 when the oracle has found each, 1 when one went unseen.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenpeak import paths

DEFECTS = {
    "guard-deaf": "kill:controller @ under load + 0 s",
    "lease-unreadable": "file:lease.json:garble @ under load + 0 s, kill:controller @ under load + 0.3 s",
    "taken-is-failed": "suspend:controller @ under load + 0 s for 24 s",
    "overlap-unseen": "production:started @ under load + 0 s",
    "outages-unseen": "cable:flap @ under load + 0 s for 10 s",
    "results-gone": "results:deleted @ under load + 0 s",
}
"""Each with the faults under which it shows."""


def plant(patch: Path, clone: Path) -> None:
    """Make a clone of what is committed, with its environment and the defect."""
    subprocess.run(["git", "clone", "-q", str(paths.ROOT), str(clone)], check=True)
    subprocess.run(["git", "apply", str(patch.resolve())], cwd=clone, check=True)
    subprocess.run(["make", "-s", "setup"], cwd=clone, check=True)


def is_found(name: str) -> bool:
    """Whether the oracle finds the defect."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-planted-"))
    try:
        clone = folder / "tokenpeak"
        plant(Path(__file__).with_name("defects") / f"{name}.patch", clone)
        argv = [".venv/bin/python", "-m", "tests.chaos.run", "--faults", DEFECTS[name], "--runs", "1"]
        done = subprocess.run(argv, cwd=clone, env={**os.environ, "PYTHONPATH": ".:tests"}, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: {'found' if done.returncode == 1 else 'NOT FOUND'}", flush=True)
    return done.returncode == 1


def main() -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("defects", nargs="*", metavar="DEFECT", help="only these of defects/")
    asked = parser.parse_args()
    found = [is_found(name) for name in asked.defects or DEFECTS]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
