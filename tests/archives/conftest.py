"""The five published archives as frames."""

import pytest

from tokenpeak import paths
from tokenpeak.store.frames import Frames, open_frames


@pytest.fixture(scope="session")
def published() -> Frames:
    """The frames of all five."""
    return open_frames(paths.ARCHIVES)
