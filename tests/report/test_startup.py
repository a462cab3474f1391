"""Start-up of a notebook: opening an archive imports nothing that only pages, charts or a database need."""

import json
import subprocess
import sys

import pytest

from tokenpeak import paths

pytestmark = pytest.mark.integration

HEAVY = ("papermill", "nbformat", "IPython", "altair", "vl_convert", "jinja2", "psycopg", "scipy")
CODE = """
import json, sys
from tokenpeak.report import open_archive
for slo in sys.argv[2:]:
    sweep = open_archive(sys.argv[1], slo=slo)
    assert sweep.runs["slo_confidence"].is_not_null().any() or not sweep.slo_words or slo
print(json.dumps(sorted(sys.modules)))
"""
OTHER_SLO = "ttft_p99_ms=2000, tpot_p99_ms=60"


@pytest.mark.parametrize("name", ["landscapes/search-cpu.tar.zst", "landscapes/search-h100.tar.zst"])
def test_an_archive_is_opened_without_heavy_imports(name: str) -> None:
    """Neither a plain archive nor one whose SLO has a confidence needs any of them; a second or more is each one's."""
    place = paths.ROOT / "analysis" / name
    result = subprocess.run(
        [sys.executable, "-c", CODE, place, "", OTHER_SLO], capture_output=True, text=True, check=True
    )
    imported = set(json.loads(result.stdout))

    assert "polars" in imported
    assert [] == [module for module in HEAVY if module in imported]
