"""The documentation, built once for all tests of a run."""

from pathlib import Path

import pytest

from made_once import made_once
from tokenpeak.cli.site import documentation
from tokenpeak.report.site.build import build_site


@pytest.fixture(scope="session")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder docs/ of a site without a sweep."""
    made = made_once(tmp_path_factory, "docs", lambda folder: build_site([], folder / "site", docs=documentation()))
    return made / "site" / "docs"
