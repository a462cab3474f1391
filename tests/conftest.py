"""What holds for every test."""

import os
from pathlib import Path

import pytest

# As the command line has it; it is read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TRIES_AGAIN = 2
REAL_PROCESSES = {Path(__file__).parent / name for name in ("loadgen", "node", "sim", "sweep")}
"""Folders whose tests start servers, engines and sweeps with deadlines of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of the wall clock is tried again: other work delays it by chance, a defect delays it each time."""
    for item in items:
        if item.path.parent in REAL_PROCESSES or item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.flaky(reruns=TRIES_AGAIN, reruns_delay=1))
