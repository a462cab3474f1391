"""`tokenpeak replay`: what a search strategy would have found on results that are known."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak.cli import options
from tokenpeak.errors import ArchiveError
from tokenpeak.node.machine.words import one_line
from tokenpeak.search.remaining import duration_text
from tokenpeak.terminal import echo, echo_text

if TYPE_CHECKING:
    from tokenpeak.search.replay import Landscape, Replay

SEARCHERS = ("adaptive", "random", "grid")
COMPARED = ("random", "grid")


@click.command(short_help="Search recorded results again: how far to trust a search.")
@click.argument("archives", nargs=-1, required=True, type=options.ARCHIVE_THERE)
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
@click.option("--seeds", type=click.IntRange(min=1), default=200, show_default=True, help="Searches.")
@click.option("--metric", help="Objective in place of the archive's, such as ttft_s_p95; says which way is better.")
@click.option("--workload", help="Workload of the objective run in place of the archive's.")
@click.option("--level", help="Load level of the objective run in place of the archive's.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes.")
@options.style("text")
def replay(
    archives: tuple[Path, ...],
    strategy: str,
    trials: int,
    nodes: int,
    seeds: int,
    metric: str | None,
    workload: str | None,
    level: str | None,
    jobs: int,
    style: str,
) -> None:
    """Search ARCHIVES (folders or .tar.zst) again, knowing the results.

    Shows how often the choice is as good as the best (within 1%, or the noise between launches where that is more),
    how much it falls short, and how many trials it takes to meet such a config, beside random and grid search.
    `takes` is how long the search takes by the clock, each round as long as its longest trial; `alone`, how long its
    trials take one after another.
    """
    from tokenpeak.search.replay import replay as search_again

    landscapes = [each for path in archives for each in _from_archives(path, metric, workload, level)]
    searchers = list(dict.fromkeys([strategy, *COMPARED]))
    replays: list[dict[str, list[Replay]]] = [
        {
            searcher: search_again(
                landscape,
                searcher,  # type: ignore[arg-type]
                trials=trials,
                seeds=seeds,
                nodes=nodes,
                jobs=jobs,
            )
            for searcher in searchers
        }
        for landscape in landscapes
    ]
    report = _report(landscapes, replays, strategy, trials, nodes, seeds)
    echo_text(json.dumps(report, indent=2) if style == "json" else _text(report))


def _from_archives(path: Path, metric: str | None, workload: str | None, level: str | None) -> "list[Landscape]":
    from tokenpeak.search.replay import landscapes_of
    from tokenpeak.spec.sweep import parse_spec
    from tokenpeak.store.archive import find_archives

    landscapes: list[Landscape] = []
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
            landscapes += landscapes_of(sweep.sweep_id, sweep, archive.judged_trials(), spec)
        except ArchiveError as error:
            if len(archives) == 1:
                raise
            echo(f"skipped {error}", err=True)
        for file in archive.malformed:
            echo(f"skipped {file}", err=True)
    if not landscapes:
        raise ArchiveError(f"No sweep in {path} has a trial that may be ranked; nothing to replay.")
    return landscapes


def _report(
    landscapes: "list[Landscape]",
    found: "list[dict[str, list[Replay]]]",
    strategy: str,
    trials: int,
    nodes: int,
    seeds: int,
) -> dict[str, object]:
    """The strategy's figures over all landscapes, then those it is compared with, then each landscape's."""
    from tokenpeak.search.replay import summarize

    def figures(replays: "dict[str, list[Replay]]") -> dict[str, object]:
        return {
            **asdict(summarize(replays[strategy])),
            **{name: asdict(summarize(replays[name])) for name in COMPARED},
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


def _text(report: dict[str, object]) -> str:
    """The report as a table: a line for each landscape and searcher."""
    lines = [
        f"{'landscape':44} {'configs':>7} {'margin':>7} {'search':>9} {'hit rate':>20} {'regret':>8} {'to hit':>7} "
        f"{'takes':>8} {'alone':>8}"
    ]
    landscapes = report["landscapes"]
    assert isinstance(landscapes, list), "_report lists the landscapes"
    for landscape in landscapes:
        first = f"{landscape['name'][:44]:44} {landscape['configs']:7} {landscape['margin']:7.1%}"
        for searcher, figures in ((report["strategy"], landscape), *((name, landscape[name]) for name in COMPARED)):
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
