"""The published archives as a site: every page of every effort, made without database, nodes or network."""

import html
import re
import socket
from pathlib import Path

import pytest
from published_names import A100, H200, PRESETS, T4, V100

from tokenpeak import paths
from tokenpeak.checks.evidence import VERDICT_WORDS
from tokenpeak.report import checks, open_archive
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.cleaned_copy import cleaned_copy
from tokenpeak.report.site.pages import SWEEP_PAGES

pytestmark = pytest.mark.integration

ALL = (V100, A100, H200, T4, PRESETS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all five, built by a process that may connect to nothing."""

    def refused(*_: object) -> None:
        raise AssertionError("a report connects to nothing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refused)
        patch.setattr(socket, "getaddrinfo", refused)
        return build_site([paths.ARCHIVES], tmp_path_factory.mktemp("published") / "site").parent


def words(page: Path) -> str:
    """A page's text on one line."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page.read_text())))


@pytest.mark.parametrize("name", ALL)
def test_every_effort_has_every_page(name: str, site: Path) -> None:
    """Each has a page for what its source gives, none that only says what it does not give, and no link to one."""
    made = {page.name for page in SWEEP_PAGES if (site / name / f"{page.name}.html").is_file()}
    linked = set(re.findall(r'href="(\w+)\.html"', (site / name / "ranking.html").read_text()))

    assert {"index", "ranking", "interactions", "load", "claims", "trials"} <= made
    assert {page.name for page in SWEEP_PAGES} & linked <= made


@pytest.mark.parametrize("name", ALL)
def test_claims_stand_with_verdict_and_arithmetic(name: str, site: Path) -> None:
    """Every claim is on its page with its verdict, each step of the computation, what holds, and why it matters."""
    page = words(site / name / "claims.html")
    judged = checks.judged(open_archive(paths.ARCHIVES / name))
    found = [
        text
        for each in judged
        for text in (
            f"{each.claim.id}: {each.claim.statement}",
            VERDICT_WORDS[each.outcome.verdict],
            *each.outcome.computation,
            each.outcome.corrected,
            each.claim.matters,
            each.claim.source,
        )
    ]

    assert judged
    assert [] == [text for text in found if re.sub(r"\s+", " ", text) not in page]


def test_claims_hold_without_node_names(tmp_path: Path) -> None:
    """A copy under labels names no preset, also not in its claims, whose verdicts stay."""
    cleaned_copy(paths.ARCHIVES / PRESETS, tmp_path / "copy", node_names=False)
    found = "".join(path.read_text() for path in (tmp_path / "copy").rglob("*") if path.suffix in (".json", ".yml"))
    before, after = (checks.judged(open_archive(path)) for path in (paths.ARCHIVES / PRESETS, tmp_path / "copy"))

    assert [each.outcome.verdict for each in before] == [each.outcome.verdict for each in after]
    assert [] == re.findall(r"H100X[12]|gpu-(?:small|medium|large|xlarge)|mi210x[12]", found)


def test_pages_show_what_they_are_for(site: Path) -> None:
    """Ranking, energy, SLO rates, presets and comparison have the published figures in them."""
    assert "21.8" in words(site / V100 / "ranking.html")
    assert "55.1 J per output token" in words(site / V100 / "energy.html")
    assert "moderate" in words(site / H200 / "ranking.html")
    assert "gpu-large" in words(site / PRESETS / "hardware.html")
    assert "492.47" in words(site / PRESETS / "hardware.html")
    assert all(name in (site / "compare.html").read_text() for name in ALL)


def test_no_page_has_a_sentence_only(site: Path) -> None:
    """The V100's publication has no single requests and one kind of hardware: no pages that say no more than that."""
    index = site / V100 / "index.html"
    pages = {page.stem: page.read_text() for page in index.parent.glob("*.html")}
    linked = re.findall(r'<li><a href="([a-z]+)\.html"', index.read_text().partition('class="pages"')[2])

    assert not {"requests", "hardware"} & (pages.keys() | {*linked})
    for text in pages.values():
        assert re.search(r'<(?:figure id=|section class="(?:table|facts|tiles))', text)


def test_models_do_not_rank_against_each_other(site: Path) -> None:
    """Where presets of hardware serve several models, the ranking page lists results and names no best config."""
    page = words(site / PRESETS / "ranking.html")

    assert "different models do not rank" in page
    assert "Diamond: recommended" not in page
