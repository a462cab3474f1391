"""`tokenpeak replay`: what a search strategy would have found on results that are known."""

import csv
import io
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak import bounded
from tokenpeak.cli import completion, options
from tokenpeak.errors import ArchiveError
from tokenpeak.node.machine.words import one_line
from tokenpeak.search.remaining import duration_text
from tokenpeak.terminal import echo, echo_text

if TYPE_CHECKING:
    from tokenpeak.search.landscape import Landscape
    from tokenpeak.search.replay import Replay

SEARCHERS = ("adaptive", "greedy", "random", "grid")
COMPARED = ("random", "grid")
COMPARED_IN_ROUNDS = ("greedy", "random", "grid")
MOST_CSV_ROWS, MOST_CSV_CELLS = 100_000, 2_000_000


@click.command(short_help="Search recorded results again: how far to trust a search.")
@click.argument("archives", nargs=-1, required=True, type=completion.ARCHIVE_THERE)
@click.option(
    "--strategy", type=click.Choice(SEARCHERS), default="adaptive", show_default=True, help="Who chooses the trials."
)
@click.option("--trials", type=click.IntRange(min=1), default=10, show_default=True, help="Trials of each search.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Trials at once: a round on so many nodes.",
)
@click.option(
    "--slow-nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many of the nodes are slow; which, is drawn for each search.",
)
@click.option(
    "--slow-by",
    type=click.FloatRange(min=0, max=1, max_open=True),
    default=0.08,
    show_default=True,
    help="By which share they are slower, whatever the config.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=200, show_default=True, help="Searches.")
@click.option(
    "--prior",
    type=click.Choice(["recorded", "wrong", "none"]),
    default="recorded",
    show_default=True,
    help="Predictions as recorded, upside down, or left out.",
)
@click.option(
    "--metric",
    help="Objective in place of the archive's, such as ttft_s_p95; says which way is better. CSV: else the value's "
    "column does where it is a metric's, else it is throughput.",
)
@click.option("--workload", help="Workload of the objective run in place of the archive's.")
@click.option("--level", help="Load level of the objective run in place of the archive's.")
@click.option("--value", help="CSV: column of the measured value (an empty cell is a failed launch).")
@click.option("--axes", help="CSV: columns that make a config, separated by commas.")
@click.option("--predicted", help="CSV: column of the predicted value, in the measured one's unit.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes.")
@options.style("text")
def replay(
    archives: tuple[Path, ...],
    strategy: str,
    trials: int,
    nodes: int,
    slow_nodes: int,
    slow_by: float,
    seeds: int,
    prior: str,
    metric: str | None,
    workload: str | None,
    level: str | None,
    value: str | None,
    axes: str | None,
    predicted: str | None,
    jobs: int,
    style: str,
) -> None:
    """Search ARCHIVES (folders, .tar.zst, or CSV files with a row for each launch) again, knowing the results.

    Shows how often the choice is as good as the best (within 1%, or the noise between launches where that is more),
    how much it falls short, and how many trials it takes to meet such a config, beside random and grid search.
    With several nodes it is beside greedy rounds too: a copy of one step on each node, blind to the others' results.
    `takes` is how long the search takes by the clock, each round as long as its longest trial; `alone`, how long its
    trials take one after another.
    """
    if slow_nodes > nodes:
        raise click.UsageError(f"--slow-nodes is {slow_nodes}, of {nodes} nodes. Give --nodes as many at least.")
    from tokenpeak.search.replay import replay as search_again

    landscapes: list[Landscape] = []
    for path in archives:
        if path.suffix == ".csv":
            columns = tuple(name.strip() for name in axes.split(",")) if axes else ()
            landscapes.append(_from_csv(path, value, columns, predicted, metric))
        else:
            landscapes += _from_archives(path, metric, workload, level)
    compared: tuple[str, ...] = COMPARED if nodes == 1 else COMPARED_IN_ROUNDS
    searchers = list(dict.fromkeys([strategy, *compared]))
    found: list[dict[str, list[Replay]]] = [
        {
            searcher: search_again(
                landscape,
                searcher,  # type: ignore[arg-type]
                trials=trials,
                seeds=seeds,
                nodes=nodes,
                slow=slow_nodes,
                slow_by=slow_by,
                prior=prior,  # type: ignore[arg-type]
                jobs=jobs,
            )
            for searcher in searchers
        }
        for landscape in landscapes
    ]
    report = _report(landscapes, found, strategy, compared, trials, nodes, seeds)
    echo_text(json.dumps(report, indent=2) if style == "json" else _text(report, compared))


def _from_csv(
    path: Path, value: str | None, axes: tuple[str, ...], predicted: str | None, metric: str | None
) -> "Landscape":
    from tokenpeak.search.landscape import landscape_of_rows

    try:
        text = bounded.read_bytes(path).decode("utf-8-sig")
        rows = list(itertools.islice(csv.DictReader(io.StringIO(text, newline=""), strict=True), MOST_CSV_ROWS + 1))
    except (UnicodeError, csv.Error) as error:
        raise ArchiveError(f"{path} cannot be read as CSV: {error}.") from error
    if (rows and len(rows) * len(rows[0]) > MOST_CSV_CELLS) or len(rows) > MOST_CSV_ROWS:
        raise ArchiveError(f"{path} has more rows or cells than landscapes have (at most {MOST_CSV_ROWS:,} rows).")
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise ArchiveError(f"{path}: row {number} has not as many cells as the header has columns.")
    return landscape_of_rows(path.stem, rows, value=value, axes=axes, predicted=predicted, metric=metric)


def _from_archives(path: Path, metric: str | None, workload: str | None, level: str | None) -> "list[Landscape]":
    from tokenpeak.search.landscape import landscapes_of
    from tokenpeak.spec.sweep import parse_spec
    from tokenpeak.store.archive import find_archives

    found: list[Landscape] = []
    archives = find_archives([path])
    for archive in archives:
        sweep = archive.read_sweep()
        raw = dict(sweep.spec)
        given = {"metric": metric, "workload": workload, "level": level}
        if any(given.values()):
            old = raw.get("objective")
            kept = dict(old) if isinstance(old, dict) else {}
            if workload and not level:
                kept["level"] = None
            # One objective is searched for; the archive's others may hold it.
            kept["also"] = []
            raw["objective"] = kept | {key: word for key, word in given.items() if word}
        spec = parse_spec(raw, archive.path / "sweep.json")
        try:
            found += landscapes_of(sweep.sweep_id, sweep, archive.judged_trials(), spec)
        except ArchiveError as error:
            if len(archives) == 1:
                raise
            echo(f"skipped {error}", err=True)
        for file in archive.malformed:
            echo(f"skipped {file}", err=True)
    if not found:
        raise ArchiveError(f"No sweep in {path} has a trial that may be ranked; nothing to replay.")
    return found


def _report(
    landscapes: "list[Landscape]",
    found: "list[dict[str, list[Replay]]]",
    strategy: str,
    compared: Sequence[str],
    trials: int,
    nodes: int,
    seeds: int,
) -> dict[str, object]:
    """The strategy's figures over all landscapes, then those it is compared with, then each landscape's."""
    from tokenpeak.search.replay import summarize

    def figures(replays: "dict[str, list[Replay]]") -> dict[str, object]:
        return {
            **asdict(summarize(replays[strategy])),
            **{name: asdict(summarize(replays[name])) for name in compared},
        }

    pooled = {name: [one for replays in found for one in replays[name]] for name in found[0]}
    each = []
    for landscape, replays in zip(landscapes, found, strict=True):
        launches = [value for values in landscape.launches.values() for value in values]
        noise = landscape.noise()
        each.append(
            {
                "name": landscape.name,
                "configs": len(landscape.launches),
                "launches": len(launches),
                "failed_launches": sum(value is None for value in launches),
                "noise": noise,
                "margin": landscape.margin(),
                **figures(replays),
            }
        )
    return {
        "strategy": strategy,
        "trials": trials,
        "nodes": nodes,
        "seeds": seeds,
        **figures(pooled),
        "landscapes": each,
    }


def _text(report: dict[str, object], compared: Sequence[str]) -> str:
    """The report as a table: a line for each landscape and searcher."""
    lines = [
        f"{'landscape':44} {'configs':>7} {'margin':>7} {'search':>9} {'hit rate':>20} {'regret':>8} {'to hit':>7} "
        f"{'takes':>8} {'alone':>8}"
    ]
    landscapes = report["landscapes"]
    assert isinstance(landscapes, list), "_report lists the landscapes"
    for landscape in landscapes:
        first = f"{landscape['name'][:44]:44} {landscape['configs']:7} {landscape['margin']:7.1%}"
        for searcher, figures in ((report["strategy"], landscape), *((name, landscape[name]) for name in compared)):
            to_hit = figures["median_trials_to_hit"]
            hits = f"{figures['hit_rate']:.1%} ({figures['hit_rate_low']:.0%}–{figures['hit_rate_high']:.0%})"
            lines.append(
                f"{first} {searcher:>9} {hits:>20} {abs(figures['median_regret']):8.2%} {to_hit or '–':>7} "
                f"{_span(figures['mean_wall_s']):>8} {_span(figures['mean_alone_s']):>8}"
            )
            first = " " * 60
    return "\n".join(map(one_line, lines))


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else duration_text(seconds)
