"""A command computes with one thread: the matrices are small, and the processors belong to others too."""

import os
import subprocess
import sys

import pytest

AFTER_A_COMMAND = """
import os, sys
from tokenpeak.cli import main
sys.argv = ["tokenpeak", "--version"]
try:
    main()
except SystemExit:
    pass
import numpy
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one processor there is one thread anyway")
@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_numpy_has_as_many_threads_as_asked_for(given: dict[str, str], threads: int) -> None:
    """One, unless the user's environment says otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | given
    made = subprocess.run(
        [sys.executable, "-c", AFTER_A_COMMAND], env=environment, capture_output=True, text=True, check=True
    )

    assert threads == int(made.stdout.split()[-1])
