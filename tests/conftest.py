"""What holds for every test."""

import gc
import os

import pytest

# As the command line has it; it is read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What is collected lives to the end, so nothing is gained by looking through it, then or later: a quarter of the
# collection's processor time.
gc.disable()

MOST_TIMING_TESTS = 40
"""So many cases may measure the wall clock, in the whole suite: where other work delays them, that hides no defect."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test with the marker `timing` is tried again, once, and listed; every other test passes at the first try."""
    timing = [(item, marker) for item in items if (marker := item.get_closest_marker("timing"))]
    for item, marker in timing:
        if not (len(marker.args) == 1 and isinstance(marker.args[0], str) and marker.args[0]):
            raise pytest.UsageError(f"{item.nodeid}: the marker timing takes its reason: timing('what is measured').")
        if config.pluginmanager.hasplugin("rerunfailures"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
    if len(timing) > MOST_TIMING_TESTS:
        raise pytest.UsageError(
            f"{len(timing)} cases have the marker timing, and at most {MOST_TIMING_TESTS} may be tried again: "
            "measure processor time, a ratio within one run, or virtual time."
        )


def pytest_collection_finish() -> None:
    """Garbage of tests is collected, and what was made before the first of them is not looked through for it."""
    gc.freeze()
    gc.enable()
