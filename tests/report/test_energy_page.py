"""The energy page against the raw files: every figure is computed here anew, from JSON alone."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import pytest
from scipy.stats import t

from archive_factory import make_archive
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.pages import SWEEP_PAGES

SWEEP = "20261119-220000-watts-rig"
PUE, KG_CO2_PER_KWH, WATER_L_PER_KWH = 1.3, 0.48, 1.8
"""What the methodology page gives as defaults."""
PRICE_PER_HOUR = 2.5
"""Of the archive's spec."""
"""kg per kWh, of the archive's spec."""
IDLE_W = 20.0
RANGES = {"pue": (1.1, 1.56), "kg_co2_per_kwh": (0.03, 0.71), "water_l_per_kwh": (0.0, 4.52)}
"""What the energy page gives as ranges of the defaults."""
OLDER = "kg_co2_per_gpu_hour"
"""A factor that specs of older archives have: it is read, and left out."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An archive whose runs have measured energies, one of them too short for a figure; and its page."""
    folder = tmp_path_factory.mktemp("energy")
    archive = folder / SWEEP
    make_archive(
        archive, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 32, 64]}, replicates=3, simulated=False, seconds=20
    )
    sweep = json.loads((archive / "sweep.json").read_text())
    sweep["spec"]["energy"] |= {
        OLDER: 0.03,
        "cited": {OLDER: {"low": 0.02, "high": 0.05, "source": "maker"}},
    }
    (archive / "sweep.json").write_text(json.dumps(sweep))
    for number, path in enumerate(sorted(archive.glob("trials/*.json"))):
        trial = json.loads(path.read_text())
        if not number:
            trial["idle_power"] = [{"boundary": "gpu_boards", "power_w": IDLE_W, "low_w": 19.0, "high_w": 21.0}]
        for run in trial["runs"]:
            run["energy"]["power_w"] *= 1.002**number * (1 + 0.001 * (-1) ** (number // 2))
            joules = run["energy"]["energy_j"] * (0.9 + 0.02 * (len(path.name) % 3) + 0.01 * trial["replicate"])
            run["energy"] |= {
                "source": "energy_counter",
                "energy_j": joules,
                "energy_low_j": 0.97 * joules,
                "energy_high_j": 1.03 * joules,
                "energy_j_per_output_tok": joules / run["summary"]["output_tokens"],
            }
        path.write_text(json.dumps(trial))
    first = next(trial for trial in trials(archive) if trial["config"]["choices"]["max_num_seqs"] == "8")
    for run in first["runs"]:
        run["energy"] |= {"energy_j": None, "energy_j_per_output_tok": None, "power_w": None, "needed_s": 44.0}
    (archive / "trials" / f"{first['trial_id']}.json").write_text(json.dumps(first))
    pages = tuple(page for page in SWEEP_PAGES if page.name in ("index", "energy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenpeak.report.site.build.pages_of_sweeps", lambda: pages)
        build_site([archive], folder / "site")
    return archive, folder / "site" / SWEEP / "energy.html"


def trials(archive: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(archive.glob("trials/*.json")):
        yield json.loads(path.read_text())


def cells(page: Path, title: str) -> list[dict[str, float | str]]:
    """The rows of a table by column: the value that a number is shown from, else the text."""
    text = page.read_text()
    part = text[text.index(f">{title}") :]
    part = part[part.index("<table") : part.index("</table>")]
    heads = re.findall(r'data-key="(\w+)"', part[: part.index("<tbody")])
    rows = []
    for row in re.findall(r"<tr>(.*?)</tr>", part[part.index("<tbody") :], re.DOTALL):
        found: list[float | str] = []
        for attributes, content in re.findall(r"<td([^>]*)>(.*?)</td>", row, re.DOTALL):
            value = re.search(r'data-value="([^"]+)"', attributes)
            found.append(float(value[1]) if value else unescape(re.sub("<[^>]+>", "", content)).strip())
        rows.append(dict(zip(heads, found, strict=True)))
    return rows


def half_interval(configs: list[list[dict[str, Any]]]) -> float:
    """Of the logarithm of one launch's energy: the spread between launches, or the sensor's where that is more.

    All launches here have the same sensor's interval, ±3%.
    """
    logs = [[math.log(run["energy"]["energy_j"] / run["summary"]["output_tokens"]) for run in runs] for runs in configs]
    freedom = sum(map(len, logs)) - len(logs)
    squares = sum((len(own) - 1) * variance(own) for own in logs if len(own) > 1)
    sensor = (math.log(1.03 / 0.97) / 2 / 1.959964) ** 2
    return float(t.ppf(0.975, freedom)) * math.sqrt(max(sensor, squares / freedom))


def objective_index(archive: Path) -> int:
    """Which run of a trial the page is about: that at a concurrency."""
    runs = next(trials(archive))["runs"]
    return next(position for position, run in enumerate(runs) if run["level"].get("concurrency"))


def expected(archive: Path) -> dict[str, dict[str, float]]:
    """Of each config: geometric means over the launches that have a figure, and their interval."""
    index = objective_index(archive)
    launches = defaultdict(list)
    for trial in trials(archive):
        run = trial["runs"][index]
        if run["verdict"]["status"] != "invalid" and run["energy"]["energy_j"] is not None:
            launches[trial["config"]["choices"]["max_num_seqs"]].append(run)
    half = half_interval(list(launches.values()))
    found = {}
    for config, runs in launches.items():
        joules = [run["energy"]["energy_j"] / run["summary"]["output_tokens"] for run in runs]
        per_token = math.exp(fmean(math.log(each) for each in joules))
        speed = math.exp(fmean(math.log(run["summary"]["output_tok_per_s"]) for run in runs))
        found[config] = {
            "energy_j_per_output_tok": per_token,
            "low": per_token * math.exp(-half / math.sqrt(len(runs))),
            "high": per_token * math.exp(half / math.sqrt(len(runs))),
            "energy_kwh_per_1m_output_tok": per_token / 3.6 * PUE,
            "co2_kg_per_1m_output_tok": per_token / 3.6 * PUE * KG_CO2_PER_KWH,
            "water_l_per_1m_output_tok": per_token / 3.6 * PUE * WATER_L_PER_KWH,
            "cost_per_1m_output_tok": PRICE_PER_HOUR / 3600 / speed * 1e6,
            "output_tok_per_s": speed,
            "power_w": math.exp(fmean(math.log(run["energy"]["power_w"]) for run in runs)),
            "idle": fmean(100 * IDLE_W / run["energy"]["power_w"] for run in runs),
            "n": len(runs),
        }
    return found


def test_every_figure_follows_from_the_raw_files(built: tuple[Path, Path]) -> None:
    archive, page = built
    wanted = expected(archive)
    shown = {str(row["label"]): row for row in cells(page, "Energy, CO₂, water and cost on")}
    drawn = {str(row["label"]): row for row in cells(page, "Energy per output token against throughput")}

    assert wanted.keys() == shown.keys() == drawn.keys()
    for config, figures in wanted.items():
        for key in sorted(figures):
            assert shown[config][key] == pytest.approx(figures[key], rel=1e-6), (config, key)
        assert drawn[config]["value"] == pytest.approx(figures["energy_j_per_output_tok"], rel=1e-6)
        assert drawn[config]["low"] == pytest.approx(figures["low"], rel=1e-6)
        assert drawn[config]["high"] == pytest.approx(figures["high"], rel=1e-6)


def test_ranges_follow_from_those_of_the_factors(built: tuple[Path, Path]) -> None:
    """Every factor at its low end, and every factor at its high end; the measured energy stands still."""
    archive, page = built
    rows = cells(page, "Energy, CO₂, water and cost with")
    figures = expected(archive)[str(rows[0]["label"])]
    ends = []
    for end in (0, 1):
        kwh = figures["energy_j_per_output_tok"] / 3.6 * RANGES["pue"][end]
        ends.append([kwh, kwh * RANGES["kg_co2_per_kwh"][end], kwh * RANGES["water_l_per_kwh"][end]])
    for row, low, high in zip(rows, *ends, strict=False):
        assert [low, high] == pytest.approx([float(each) for each in str(row["range"]).split(" to ")], rel=5e-3)
    assert "–" == rows[3]["range"]


def test_one_config_for_a_million_tokens_a_month_and_a_year(built: tuple[Path, Path]) -> None:
    """A month is the volume of 1,000 million tokens, a year twelve of them; each has three digits."""
    archive, page = built
    rows = cells(page, "Energy, CO₂, water and cost with")
    figures = expected(archive)[str(rows[0]["label"])]
    wanted = [figures[f"{key}_per_1m_output_tok"] for key in ("energy_kwh", "co2_kg", "water_l", "cost")]

    assert wanted == pytest.approx([row["million"] for row in rows], rel=1e-6)
    assert [1000 * each for each in wanted] == pytest.approx([row["month"] for row in rows], rel=1e-6)
    assert [12_000 * each for each in wanted] == pytest.approx([row["year"] for row in rows], rel=1e-6)


def test_a_run_too_short_is_said(built: tuple[Path, Path]) -> None:
    """The launch without a figure counts nowhere; the page says how long it had to be."""
    archive, page = built
    short = sum(len(trial["runs"]) for trial in trials(archive) if trial["runs"][0]["energy"]["energy_j"] is None)

    assert f"{short} of " in page.read_text()
    assert "too short for an energy figure within ±5%. 44 s would do." in page.read_text()
    assert 2 == expected(archive)["8"]["n"]
