"""Tables of the reference: commands, views, frames, metrics and exit statuses as entries that can be linked to."""

from collections.abc import Iterator
from dataclasses import dataclass

import click

from tokenpeak.errors import ExitStatus
from tokenpeak.metrics import METRICS, STATISTICS
from tokenpeak.paths import slug
from tokenpeak.spec.schema import field_docstrings
from tokenpeak.store.schema import views
from tokenpeak.store.tables import TABLES

HEADS = ("Column", "Type", "Holds")
OPTION_HEADS = ("Option", "Takes", "Default", "Does")
_WORDS = {"integer": "whole number", "float": "number", "text": "text", "path": "path", "boolean": ""}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row that can be linked to. Cells are Markdown of one line."""

    name: str
    """What the row is about: a key, an option, a column; the search finds it by this."""
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ReferenceTable:
    """A heading, what is said below it, and rows."""

    title: str
    """Markdown of one line; unique on its page."""
    says: str = ""
    """Markdown."""
    heads: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return slug(self.title.replace("`", ""))

    def anchor_of(self, entry: Entry) -> str:
        """A row's address on the page."""
        return slug(f"{self.anchor} {entry.name}")


def row(name: str, *cells: str) -> Entry:
    """A row whose first cell is its name as code."""
    return Entry(name=name, cells=(f"`{name}`", *cells))


def listed(words: list[str], last: str = "or") -> str:
    """Words in a row: `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def view_tables() -> list[ReferenceTable]:
    """A table for each view."""
    return [
        ReferenceTable(
            title=f"`{name}`",
            says=view.meaning,
            heads=HEADS,
            entries=tuple(row(column.name, column.kind or "–", column.meaning) for column in view.columns),
        )
        for name, view in views().items()
    ]


def frame_tables() -> list[ReferenceTable]:
    """A table for each frame, which is a table of the database too."""
    return [
        ReferenceTable(
            title=f"`{table.name}`",
            says=f"A row is {table.row_is}. Key: {', '.join(f'`{key}`' for key in table.key)}.",
            heads=HEADS,
            entries=tuple(row(column.name, column.kind, column.meaning) for column in table.columns),
        )
        for table in TABLES
    ]


def metric_tables() -> list[ReferenceTable]:
    """All metrics."""
    statistics = ", ".join(f"`{name}`" for name in STATISTICS)
    return [
        ReferenceTable(
            title="Metrics",
            says=f"A metric over requests has a column for each statistic of them: {statistics}, as in `ttft_s_p95`. "
            "The others have one value for a run.",
            heads=("Column", "Metric", "Of", "Unit", "Better", "Formula"),
            entries=tuple(
                row(
                    metric.name,
                    metric.title,
                    "requests" if metric.distribution else "a run",
                    metric.unit,
                    metric.direction if metric.direction != "neither" else "–",
                    metric.formula,
                )
                for metric in METRICS
            ),
        )
    ]


def status_tables() -> list[ReferenceTable]:
    """All exit statuses."""
    meanings = field_docstrings(ExitStatus)
    return [
        ReferenceTable(
            title="Exit statuses",
            heads=("Status", "Says"),
            entries=tuple(row(str(int(status)), meanings[status.name]) for status in ExitStatus),
        )
    ]


def command_tables(group: click.Group) -> list[ReferenceTable]:
    """A table for each command and each command below it, in the order of the help."""
    context = click.Context(group, info_name="tokenpeak")
    return [_table(each, command) for each, command in _commands(context, group)]


def _commands(context: click.Context, group: click.Group) -> Iterator[tuple[click.Context, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, "a group has the commands that it lists"
        below = click.Context(command, info_name=name, parent=context)
        yield below, command
        if isinstance(command, click.Group):
            yield from _commands(below, command)


def _table(context: click.Context, command: click.Command) -> ReferenceTable:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    paragraphs = [" ".join(each.split()) for each in (command.help or "").split("\n\n")]
    return ReferenceTable(
        title=f"`{context.command_path}`",
        says="\n\n".join([f"```sh usage\n{usage}\n```", *paragraphs]),
        heads=OPTION_HEADS,
        entries=tuple(_entry(each, context) for each in command.get_params(context) if "--help" not in each.opts),
    )


def _entry(parameter: click.Parameter, context: click.Context) -> Entry:
    if isinstance(parameter, click.Argument):
        name = parameter.make_metavar(context)
    else:
        name = " / ".join(["`, `".join(parameter.opts), *parameter.secondary_opts])
    return Entry(
        name=" ".join((*parameter.opts, *parameter.secondary_opts)),
        cells=(f"`{name}`", _takes(parameter), _default(parameter), _meaning(parameter)),
    )


def _meaning(parameter: click.Parameter) -> str:
    said = str(getattr(parameter, "help", None) or "")
    return f"{said} May be given more than once." if parameter.multiple and "more than once" not in said else said


def _takes(parameter: click.Parameter) -> str:
    """Kind of value, in words; nothing for a switch."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "–"
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return listed([f"`{choice}`" for choice in kind.choices])
    bounds = []
    if isinstance(kind, click.IntRange | click.FloatRange):
        bounds += [f"{'>' if kind.min_open else '≥'} {kind.min:g}"] if kind.min is not None else []
        bounds += [f"{'<' if kind.max_open else '≤'} {kind.max:g}"] if kind.max is not None else []
    word = kind.name.removesuffix(" range")
    return " and ".join([_WORDS.get(word, word), *bounds]).replace(" and ", " ", 1)


def _default(parameter: click.Parameter) -> str:
    if parameter.required and isinstance(parameter, click.Option):
        return "required"
    shown = parameter.show_default if isinstance(parameter, click.Option) else None
    if isinstance(shown, str):
        return shown
    value = parameter.default
    if isinstance(value, bool):
        return f"`{parameter.opts[0]}`" if value else "–"
    if isinstance(value, str | int | float):
        return f"`{value}`"
    return "–"
