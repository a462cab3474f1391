"""Every command of the command line as tables of the reference: usage, arguments and options."""

from collections.abc import Iterator

import click

from tokenpeak.docs.reference_tables import Entry, ReferenceTable, listed

HEADS = ("Option", "Takes", "Default", "Does")
_WORDS = {"integer": "whole number", "float": "number", "text": "text", "path": "path", "boolean": ""}


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
        heads=HEADS,
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
    """What kind of value, in words; nothing for a switch."""
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
