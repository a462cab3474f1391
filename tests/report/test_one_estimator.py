"""One estimator for each metric on all pages, each on the archive whose pages once differed; judged by NumPy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tokenpeak import paths
from tokenpeak.report import config_energy, energy, heatmaps, interactions, open_archive, requests
from tokenpeak.report.blocks.block import Facts, Table
from tokenpeak.report.load import load_levels
from tokenpeak.report.overview import headline
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.overview.summary import cost_of_sweep
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.trials import trial_tables
from tokenpeak.report.view import SweepView

LANDSCAPES = paths.ROOT / "analysis" / "landscapes"
H100, CPU, SIM = (LANDSCAPES / f"{name}.tar.zst" for name in ("search-h100", "landscape-cpu", "requests-sim"))
H200 = paths.ARCHIVES / "h200-llama70b-fp8"


def geometric(values: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def visible(table: Table) -> list[str]:
    """The titles of the columns that a table shows at first."""
    return [column.title for column in table.columns if not column.hidden]


def column_of(table: Table, key: str) -> dict[str, str]:
    """A column's texts by the first column's."""
    place = [column.key for column in table.columns].index(key)
    return {row[0]["text"]: row[place]["text"] for row in table.rows}


def fact(facts: Facts, title: str) -> str:
    """What stands beside a title."""
    return dict(facts.pairs)[title]


def energy_words(view: SweepView) -> str:
    """The energy page's sentence on the first hardware."""
    frame = config_energy.with_ranks(config_energy.energy_configs(view))
    return config_energy.answer_energy(view.hardware[0], frame, None, frame["label"][0]).words()


def test_estimated_energy_is_not_ranked() -> None:
    """Watts ÷ tok/s has neither ranks nor intervals nor a change in green; the figure is the geometric mean."""
    view = open_archive(CPU)
    ranked = rank(view, view.hardware[0])
    frame = config_energy.with_ranks(config_energy.energy_configs(view))
    table = energy.energy_table(view, view.hardware[0], frame)
    (label, joule), *_ = frame.select("label", "energy_j_per_output_tok").rows()
    class_of = view.trials.select("trial_id", "config_class")
    runs = view.objective_runs().join(class_of, on="trial_id")
    alike = runs.filter(pl.col("label") == label)["config_class"]
    own = runs.filter(pl.col("config_class").is_in(alike.implode()))["energy_j_per_output_tok"].to_list()
    card = score_card(view, ranked)
    assert card is not None
    tiles = {tile.label: tile for tile in card.tiles}

    assert not {"Rank", "Result", "Energy, low", "Energy, high"} & set(visible(table))
    assert geometric(own) == pytest.approx(joule)
    assert "configs are not ranked by energy" in energy_words(view)
    assert ("estimated", "") == (tiles["Energy"].mark, tiles["Energy"].tone)
    assert "%" not in tiles["Energy"].note


def test_energy_of_one_launch_each_has_no_interval() -> None:
    """Nothing was launched again on the H100, so no spread is assumed."""
    view = open_archive(H100)
    frame = config_energy.with_ranks(config_energy.energy_configs(view))

    assert frame["low"].is_null().all()
    assert "lowest, not proven" == frame["result"][0]
    assert "(one launch, no interval)" in energy_words(view)


def test_energy_has_the_spread_of_the_objective_where_it_was_not_measured_again() -> None:
    """Energies of one launch each: the interval is by what launches of the objective vary."""
    view = open_archive(SIM)
    runs = config_energy.energy_runs(view).with_columns(energy_source=pl.lit("energy_counter"))
    alone = runs.unique("config_id", keep="first", maintain_order=True)
    found = config_energy.with_energy_intervals(view, config_energy.energy_configs(view), alone)
    values = view.trials.filter(pl.col("objective") > 0).group_by("config_id").agg(pl.col("objective").log())
    logs = [np.array(own) for own in values["objective"].to_list()]
    freedom = sum(len(own) - 1 for own in logs)
    spread = np.sqrt(sum(((own - own.mean()) ** 2).sum() for own in logs) / freedom)
    expected = spread * stats.t.ppf(0.975, freedom)
    halves = (found["high"] / found["low"]).log().to_numpy() / 2

    assert halves == pytest.approx(np.full(len(halves), expected))


def test_a_rate_of_several_launches_is_the_lowest() -> None:
    """The defaults of the H200 held 2 and 1.5 req/s: 1.5 is shown with each, and no figure of the other launch."""
    view = open_archive(H200)
    ranked = rank(view, view.hardware[0])
    (row,) = ranked.frame.filter(pl.col("n") == 2).iter_rows(named=True)
    table = ranking_blocks.ranking_table(view, ranked)
    drawn = dict(ranking_blocks.standings(ranked).select("label", "value").iter_rows())
    lowest = view.runs.filter(pl.col("trial_id") == "0002-5d533368", pl.col("rate_per_s") == 1.5)

    assert geometric([2.0, 1.5]) == pytest.approx(row["objective"])
    assert (1.5, "2 and 1.5") == (row["shown"], row["each_launch"])
    assert 1.5 == float(column_of(table, "objective")[row["label"]])
    assert "2 and 1.5" == column_of(table, "each_launch")[row["label"]]
    assert 1.5 == drawn[row["label"]]
    assert lowest["ttft_s_p99"].to_list() == [row["ttft_s_p99"]]
    assert "1.73" not in headline.recommendation(view, ranked).words()


@pytest.mark.parametrize("share", [50, 95, 99])
def test_ttft_is_the_same_on_all_pages(share: int) -> None:
    """Ranking, requests and load levels: the geometric mean over launches of each launch's percentile."""
    view = open_archive(SIM)
    ranked = rank(view, view.hardware[0])
    measured = requests.requests_of(view, ranked)
    shown = dict(
        requests.quantiles(view, ranked, measured).filter(quantity="ttft_s", x=share / 100)["series", "value"].rows()
    )
    means = load_levels.level_means(view, view.hardware[0])
    workload, level = view.spec.objective_run()
    raw = view.requests.filter(pl.col("phase") == "measured", pl.col("error").is_null()).collect()
    for row in ranked.frame.filter(pl.col("state") == "ok").iter_rows(named=True):
        runs = view.objective_runs().filter(pl.col("config_id") == row["config_id"], pl.col("verdict") != "invalid")
        of_launches = []
        for trial_id, index in runs.select("trial_id", "run_index").iter_rows():
            own = raw.filter(pl.col("trial_id") == trial_id, pl.col("run_index") == index)
            of_launches.append(float(np.quantile((own["first_token_s"] - own["sent_s"]).to_numpy(), share / 100)))
        expected = geometric(of_launches)

        assert row["n"] > 1
        # Runs of this archive counted from when a request was due, less than a millisecond earlier.
        assert expected == pytest.approx(row[f"ttft_s_p{share}"], abs=0.002)
        assert row[f"ttft_s_p{share}"] == pytest.approx(shown[row["label"]] / 1000)
        if share == 95:
            at = means.filter(label=row["label"], workload_name=workload, level_label=level)
            assert (row["slo_met"], row["slo_confidence"]) == (at["slo_met"].item(), at["slo_confidence"].item())
            assert at["ttft_s_p95"].to_list() == pytest.approx([row["ttft_s_p95"]])


def test_latencies_are_at_the_percentile_of_the_slo() -> None:
    """Under limits of p99 no table shows a p95 in its place."""
    view = open_archive(H100)
    ranked = rank(view, view.hardware[0])
    tables = [
        ranking_blocks.ranking_table(view, ranked),
        trial_tables.runs(view, view.runs, "runs", "Runs"),
        load_levels.load_levels(view, ranked),
    ]
    for table in tables:
        assert table is not None
        titles = [title for title in visible(table) if "TTFT" in title or "TPOT" in title]
        assert any("p99" in title for title in titles)
        assert not any("p95" in title for title in titles)


def test_heatmaps_have_geometric_means() -> None:
    """Those of effects and of the ranking."""
    view = open_archive(CPU)
    across, down = interactions.pairs(view)[0]
    frame = rank(view, view.hardware[0]).frame
    for cell in heatmaps.cells(view, across, down, 1.0).filter(state="value").iter_rows(named=True):
        here = frame.filter(
            pl.col(f"axis_{across}") == cell["across"], pl.col(f"axis_{down}") == cell["down"], pl.col("rank") > 0
        )

        assert geometric(here["objective"].to_list()) == pytest.approx(cell["value"])


def test_energy_says_which_part_of_launches_it_is_of() -> None:
    """Of the H100: 52.8 Wh in loads, 92.4 Wh by the counter in whole launches."""
    view = open_archive(H100)
    counter = view.series.filter(pl.col("quantity") == "gpu0_energy_j")
    readings = [own["value"].to_numpy() for _, own in counter.group_by("trial_id")]
    whole = sum(float(np.nanmax(own) - np.nanmin(own)) for own in readings) / 3600
    loads = float(np.sum(view.runs["energy_j"].to_numpy())) / 3600
    words = fact(cost_of_sweep(view), "Energy")

    assert [f"{loads:.3g}", f"{whole:.3g}"] == [f"{float(each):.3g}" for each in words.split() if each[0].isdigit()]


def test_a_caption_says_what_it_counts() -> None:
    """Points are groups of requests, and both are counted."""
    view = open_archive(SIM)
    ranked = rank(view, view.hardware[0])
    measured = requests.requests_of(view, ranked)
    groups = requests.by_group(measured, "input_tokens")
    figure = requests.group_figure(view, view.hardware[0], groups, "input length (tokens)", [], {})

    assert f"{groups.height} points of {measured.height:,} requests" in figure.caption.replace("\u2009", ",")
    assert "n=" not in figure.caption
