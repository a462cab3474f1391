"""The published archives as a site: every page of every effort, made without database, nodes or network."""

import html
import re
import socket
from pathlib import Path

import pytest
from published_names import A100, H200, PRESETS, T4, V100

from tokenpeak import paths
from tokenpeak.report import claims, open_archive
from tokenpeak.report.release import release
from tokenpeak.report.site import SWEEP_PAGES, build_site
from tokenpeak.stats.checks.outcome import VERDICT_WORDS

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
    """Aggregates without requests have all pages that a sweep has."""
    assert [] == [page.name for page in SWEEP_PAGES if not (site / name / f"{page.name}.html").is_file()]


@pytest.mark.parametrize("name", ALL)
def test_claims_stand_with_verdict_and_arithmetic(name: str, site: Path) -> None:
    """Every claim is on its page with its verdict, each step of the computation, what holds, and why it matters."""
    page = words(site / name / "claims.html")
    judged = claims.judged(open_archive(paths.ARCHIVES / name))
    told = [
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
    assert [] == [text for text in told if re.sub(r"\s+", " ", text) not in page]


def test_claims_hold_without_node_names(tmp_path: Path) -> None:
    """A copy under labels names no preset, also not in its claims, whose verdicts stay."""
    release(paths.ARCHIVES / PRESETS, tmp_path / "copy", node_names=False)
    told = "".join(path.read_text() for path in (tmp_path / "copy").rglob("*") if path.suffix in (".json", ".yml"))
    before, after = (claims.judged(open_archive(path)) for path in (paths.ARCHIVES / PRESETS, tmp_path / "copy"))

    assert [each.outcome.verdict for each in before] == [each.outcome.verdict for each in after]
    assert [] == re.findall(r"H100X[12]|gpu-(?:small|medium|large|xlarge)|mi210x[12]", told)


def test_pages_show_what_they_are_for(site: Path) -> None:
    """Ranking, energy, SLO rates, presets and comparison have the published figures in them."""
    assert "21.8" in words(site / V100 / "ranking.html")
    assert "55.05 J per output token" in words(site / V100 / "energy.html")
    assert "moderate" in words(site / H200 / "ranking.html")
    assert "gpu-large" in words(site / PRESETS / "hardware.html")
    assert "492.47" in words(site / PRESETS / "hardware.html")
    assert all(name in (site / "compare.html").read_text() for name in ALL)
