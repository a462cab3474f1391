"""Start-up of a notebook: opening an archive imports nothing that only pages, charts or a database need."""

import json
import resource
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
    assert sweep.runs["slo_sure"].is_not_null().any() or not sweep.slo_words or slo
print(json.dumps(sorted(sys.modules)))
"""
OTHER_SLO = "ttft_p99_ms=2000, tpot_p99_ms=60"
SEVERAL = paths.ROOT / "analysis" / "archives" / "a100x8-llama70b"
MOST = 3.5
"""How many times the CPU time of `import polars` alone; about twice it is what opening takes."""


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


def cpu_s(code: str, *given: object) -> float:
    """User and system time of a Python process, the least of three: what runs beside it adds to some."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, *map(str, given)], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


@pytest.mark.parametrize(
    "slo", [pytest.param("", id="its own SLO"), pytest.param(OTHER_SLO, id="another SLO", marks=pytest.mark.e2e)]
)
def test_an_archive_is_opened_soon(slo: str) -> None:
    """In CPU time that is measured against Polars's own start-up, so that a busy or a slow machine changes little."""
    polars_s, opened_s = cpu_s("import polars"), cpu_s(CODE, SEVERAL, slo)

    assert opened_s < MOST * polars_s, f"{opened_s:.2f} s, and {polars_s:.2f} s for Polars"
