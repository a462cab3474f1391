"""Text made safe for a terminal, and `echo`, which prints it; beside `console.SafeConsole` the only way out.

A name, a log line or an error may come from a node, an engine, an archive or an import. A terminal obeys what is
hidden in it: it retitles its window, rewrites lines above, answers as if the user had typed.
"""

from collections.abc import Iterable

import click

from tokenpeak.node.machine import words


def visible(text: str) -> str:
    """The text with every hidden character written out by its code; line ends of Windows are line ends."""
    return words.visible(text.replace("\r\n", "\n"), kept=words.LINES)


def visible_log(text: str) -> str:
    """A log likewise: a progress bar's carriage returns are line ends."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def echo(message: object = "", *, err: bool = False) -> None:
    """Print a message in one line, whatever words of others are in it."""
    click.echo(words.one_line(str(message)), err=err)


def echo_data(text: str, *, err: bool = False) -> None:
    """Print what another program wrote, safe likewise: data, which name no command to type."""
    click.echo(words.no_command(visible(text)), err=err, nl=False)


def echo_lines(lines: Iterable[str]) -> None:
    """Print messages, each in the one line that it is."""
    for line in lines:
        echo(line)


def echo_text(text: str, *, err: bool = False) -> None:
    """Print a text of several lines: JSON, a table, an error. Whoever makes it keeps others' words in their lines."""
    click.echo(words.no_command(visible(text)), err=err)
