"""The golden site: every page of a small archive as it was when somebody last looked at it, and the start notebook.

`make golden` writes them again, the pages from `golden/archive`, the notebook's outputs from the shipped archive that
it shows; the difference is then looked at and committed like any other.
"""

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from tokenpeak.report.blocks.display import VEGALITE_MIME
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.notebook_runner import execute
from tokenpeak.report.site.pages import START

FOLDER = Path(__file__).parent / "golden"
ARCHIVE, SITE = FOLDER / "archive", FOLDER / "site"
LONG = re.compile(r"-?\d+\.\d{9,}(?:e-?\d+)?")
PICTURE = re.compile(r'<svg [^>]*class="marks".*?</svg>', re.DOTALL)
WORDS = re.compile(r"<text[^>]*>(.*?)</text>", re.DOTALL)
DATASET = re.compile(r"data-[0-9a-f]{32}")
SIZE = re.compile(r'(<a href="[^"]*" download>[^<]*</a></td><td class="k-number") data-value="\d+">[\d.,]+')


def normal(text: str) -> str:
    """The text without what differs between machines.

    Static pictures are laid out by the fonts that are installed, so their words stand for them; what is drawn is in the
    figure's specification, word for word. A download's size depends on the libraries that wrote it, the last digits of
    a float on the processor, and with them the name that a figure's data has, which is their hash.
    """
    pictures = PICTURE.sub(lambda found: "\n".join(["[picture]", *WORDS.findall(found[0])]), text)
    unnamed = DATASET.sub("data", SIZE.sub(r"\1>size", pictures))
    return LONG.sub(lambda found: str(float(f"{float(found[0]):.9g}")), unnamed)


def pages(site: Path) -> dict[str, str]:
    """Each page of a site as compared, by its path."""
    return {
        path.relative_to(site).as_posix(): normal(path.read_text())
        for path in sorted(site.rglob("*"))
        if path.suffix == ".html"
    }


def built(folder: Path) -> dict[str, str]:
    """What the archive makes now."""
    build_site([ARCHIVE], folder / "site")
    return pages(folder / "site")


def kept() -> dict[str, str]:
    """What was looked at."""
    return {path.relative_to(SITE).as_posix(): path.read_text() for path in sorted(SITE.rglob("*")) if path.is_file()}


COMPARED = ("text/html", "text/plain", VEGALITE_MIME)
"""What is kept of the start notebook's outputs; its pictures are drawn by the fonts that are installed."""


def started(folder: Path) -> Any:
    """The start notebook as it runs in a fresh clone, with the outputs that are kept."""
    given = nbformat.read(START, as_version=4)
    executed = execute(START, folder / "notebooks" / START.name, {})
    for cell, run in zip(given.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = run.execution_count, run.outputs
            for output in (each for each in cell.outputs if "data" in each):
                if output.output_type == "execute_result":
                    output["execution_count"] = run.execution_count
                output["data"] = {kind: data for kind, data in output.data.items() if kind in COMPARED}
    return given


def outputs(notebook: Any) -> str:
    """The outputs of a notebook as compared."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return normal(json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True))


def renew() -> list[str]:
    """Write what the archive makes now; the paths that changed."""
    with tempfile.TemporaryDirectory() as scratch:
        now, before = built(Path(scratch)), kept()
        nbformat.write(started(Path(scratch)), START)
    shutil.rmtree(SITE, ignore_errors=True)
    for name, text in now.items():
        path = SITE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))


if __name__ == "__main__":
    changed = renew()
    sys.stdout.write("\n".join(changed) + f"\n{len(changed)} files changed; look at them: git diff {SITE}\n")
