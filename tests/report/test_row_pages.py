"""Tables of more rows than a page shows: the others are on further pages, each with its links."""

import csv
import re
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak.report.blocks import block
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.publish import leaving

pytestmark = pytest.mark.integration

SHOWN = 3


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a sweep of eight trials, of which a page shows three rows."""
    folder = tmp_path_factory.mktemp("rows")
    axes = {"max_num_seqs": [8, 64]}
    archive = make_archive(folder / "long", gpus=["NVIDIA L4"], axes=axes, replicates=4, seconds=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(block.table.__kwdefaults__, "shown", SHOWN)
        return build_site([archive.path], folder / "site").parent / "long"


def trials_of(page: Path) -> list[str]:
    """The trials in the rows of the table of trials, in its order."""
    table = re.search(r'<section[^>]* id="table-trials".*?</section>', page.read_text(), re.DOTALL)
    assert table
    return re.findall(r'<td class="k-code"><a href="[^"]*trials/[^"]+">([^<]+)</a></td>', table[0])


def links_of(page: Path) -> list[str]:
    """The addresses on a page, without its head and foot."""
    main = re.search(r"<main.*</main>", page.read_text(), re.DOTALL)
    assert main
    return re.findall(r'<a href="([^"#]+)', main[0])


@pytest.mark.e2e
def test_every_row_is_on_one_page(sweep: Path) -> None:
    """The page's own rows and those of its further pages, by its links, are those of the CSV, in its order."""
    page = sweep / "trials.html"
    further = [link for link in links_of(page) if link.startswith("rows/trials-trials-")]
    parts = [trials_of(each) for each in (page, *(sweep / link for link in further))]
    with (sweep / "data" / "csv" / "trials-trials.csv").open(newline="") as file:
        _, *written = csv.reader(file)

    assert [SHOWN] * (len(written) // SHOWN) == [len(part) for part in parts if len(part) == SHOWN]
    assert [row[0] for row in written] == [trial for part in parts for trial in part]


def test_further_pages_leave_with_the_site(sweep: Path) -> None:
    """What is published has them."""
    pages = {f"long/rows/{page.name}" for page in (sweep / "rows").glob("*.html")}

    assert pages
    assert pages <= set(leaving(sweep.parent))
