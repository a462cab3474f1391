"""Every figure in every sentence and card of a site is recomputed from raw JSON, by code of its own."""

import os
from pathlib import Path

import pytest
from judge import pages, patterns, text
from judge.raw import Raw, unpacked

from tokenpeak import paths
from tokenpeak.report.site.build import build_site

LANDSCAPES = paths.ROOT / "analysis" / "landscapes"
ARCHIVES = {
    "h100": LANDSCAPES / "search-h100.tar.zst",
    "cpu": LANDSCAPES / "search-cpu.tar.zst",
    "v100": paths.ARCHIVES / "v100-deepseek-r1-32b",
    "quick": paths.ROOT / "tests" / "archives" / "sweeps" / "20261121-122043-quick-cpu.tar.zst",
    "sim": LANDSCAPES / "requests-sim.tar.zst",
    # Archives of one's own, such as that of `tokenpeak sweep`.
    **{Path(each).name: Path(each) for each in os.environ.get("TOKENPEAK_JUDGED", "").split(":") if each},
}
LONG = ("cpu", "v100", "quick", "sim")
"""Those of `make e2e`; what a page of them says is of the kinds that the other has."""
LEAST = {"h100": 43, "cpu": 30, "v100": 19, "quick": 22, "sim": 32}
"""Figures that a site says at least: a judge that finds fewer has not read it."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.e2e if name in LONG else pytest.mark.integration) for name in ARCHIVES],
)
def test_every_figure_of_every_sentence_is_the_raw_files(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headline, cards and all other sentences; what no formula knows is an error."""
    if name == "h100":
        built = request.getfixturevalue("h100")
    else:
        # Where this machine keeps models and their shapes: a page is made of the archive alone.
        for variable in ("XDG_DATA_HOME", "TOKENPEAK_STATE", "HF_HOME"):
            monkeypatch.setenv(variable, str(tmp_path / variable))
        built = build_site([ARCHIVES[name]], tmp_path / "site").parent
    raw = Raw(unpacked(ARCHIVES[name], tmp_path / "raw"))
    folder = built / raw.sweep["sweep_id"]
    site, figures, wrong = text.Site(raw), 0, []
    # What axes do is judged where it is estimated, in tests/ranking.
    pages_of = [path for path in sorted(folder.glob("*.html")) if path.name != "interactions.html"]
    order = [folder / "index.html", built / "index.html", *pages_of]
    for page in dict.fromkeys(order):
        for said in pages.texts(page):
            try:
                figures += text.judge(said, site, patterns.KINDS[said.kind])
            except text.WrongError as error:
                wrong.append(str(error))

    assert [] == wrong
    assert figures >= LEAST.get(name, 20)


def test_a_wrong_figure_is_found(tmp_path: Path) -> None:
    """The judge does not nod: a headline with another number, and a sentence that it does not know, are wrong."""
    raw = Raw(unpacked(ARCHIVES["h100"], tmp_path))
    right = (
        "On 1x NVIDIA H100 80GB HBM3: Keep the engine's defaults, as nothing is shown to be better: "
        "5,490 tok/s at concurrency=256."
    )

    def said(words: str) -> int:
        return text.judge(pages.Said("index", "sentence", words), text.Site(raw), patterns.SENTENCES)

    assert 1 == said(right)
    run = (
        "On 1x NVIDIA H100 80GB HBM3: Run ⟦max_num_seqs=512, max_num_batched_tokens=8192, weights=fp8, "
        "kv_cache_dtype=fp8⟧: 7,704 tok/s at concurrency=256."
    )
    for changed in (right.replace("5,490", "5,491"), right.replace("defaults", "production"), run, f"{right} It is 3."):
        with pytest.raises(text.WrongError):
            said(changed)
