"""`tokenpeak gate`: whether a sweep is worse than one before, for people and for CI."""

import json
import sys
from pathlib import Path

import click

from tokenpeak.cli.options import ARCHIVE_THERE, OUTPUT_FILE
from tokenpeak.errors import InputError, suggestion
from tokenpeak.files import write_atomically
from tokenpeak.gate.comparison import compare
from tokenpeak.gate.power import power_against, power_json, power_lines
from tokenpeak.gate.side import Side, read_side
from tokenpeak.gate.text import as_json, junit, lines, markdown
from tokenpeak.metrics import BY_NAME, metric_of
from tokenpeak.ranking.objective import column_of, metric_direction
from tokenpeak.terminal import echo_lines


@click.command(short_help="Compare a sweep with one before: regressed, improved, tied.")
@click.argument("new", nargs=-1, type=ARCHIVE_THERE)
@click.option(
    "--against", "old", multiple=True, required=True, type=ARCHIVE_THERE, help="What was before; several are one."
)
@click.option(
    "--plan", "is_plan", is_flag=True, help="Before NEW is made: the smallest regression that n launches find."
)
@click.option(
    "--regression",
    type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="--plan: the share that is to be found.",
)
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="--plan: the time that NEW may take.")
@click.option("--metric", "metrics", multiple=True, help="Compare by this column only, such as ttft_s_p95. Repeatable.")
@click.option("--config", "configs", multiple=True, help="Compare this config only, by name or id. Repeatable.")
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
    help="Share below which a change is a tie; the sweep's search.margin when absent.",
)
@click.option("--common", is_flag=True, help="Leave out what only one side has.")
@click.option("--all", "everything", is_flag=True, help="Print the ties as well.")
@click.option("--json", "json_file", type=OUTPUT_FILE, help="Write every comparison to this file.")
@click.option("--junit", "junit_file", type=OUTPUT_FILE, help="Write JUnit XML to this file.")
@click.option("--markdown", "markdown_file", type=OUTPUT_FILE, help="Write a summary for a CI job to this file.")
def gate(
    new: tuple[Path, ...],
    old: tuple[Path, ...],
    *,
    is_plan: bool,
    regression: float,
    hours: float | None,
    metrics: tuple[str, ...],
    configs: tuple[str, ...],
    margin: float | None,
    common: bool,
    everything: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Compare NEW with what was before: archives, folders of them, or .tar.zst.

    Configs are equal by id, or, where the engine build is what changed, by everything else. Each figure of each config
    under each load is compared by its launches, two of each side at least; what holds for all figures together is in
    the last lines. Exit status: 0 nothing regressed; 3 something did; 4 nothing did, and something is not comparable.
    """
    columns = tuple(map(_column, metrics))
    before = read_side(old)
    _require(before, configs)
    least = margin or before.spec.search.margin
    if is_plan:
        if new or junit_file or markdown_file:
            raise click.UsageError("--plan is asked before NEW is made; it writes text, and --json FILE.")
        power = power_against(before, margin=least, metrics=columns, configs=configs)
        echo_lines(power_lines(power, before, regression=regression, hours=hours))
        if json_file:
            write_atomically(json_file, _json(power_json(power, before, regression=regression, hours=hours)))
        return
    if not new:
        raise click.UsageError("Name NEW, or ask with --plan what a NEW would have to be.")
    now = read_side(new)
    if both := set(now.sweep_ids) & set(before.sweep_ids):
        raise InputError(f"Sweep {min(both)} is on both sides, and equals itself. Name another.")
    comparison = compare(before, now, margin=least, metrics=columns, configs=configs, common=common)
    echo_lines(lines(comparison, everything=everything))
    contents = {
        json_file: _json(as_json(comparison)),
        junit_file: junit(comparison),
        markdown_file: markdown(comparison),
    }
    for file, content in contents.items():
        if file is not None:
            write_atomically(file, content)
    sys.exit(comparison.status)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _column(metric: str) -> str:
    """The column that holds a metric by which launches can be compared."""
    if metric_of(metric) is None or metric_direction(metric) == "neither":
        raise InputError(f"--metric is {metric!r}, which no launches are compared by. {suggestion(metric, BY_NAME)}")
    return column_of(metric)


def _require(side: Side, configs: tuple[str, ...]) -> None:
    """Raise InputError for a config that the old side did not launch."""
    known = {word for config in side.launched for word in (config.name, config.config_id)}
    if unknown := [name for name in configs if name not in known]:
        names = {config.name for config in side.launched}
        raise InputError(f"{', '.join(side.sweep_ids)} did not launch {unknown[0]!r}. {suggestion(unknown[0], names)}")
