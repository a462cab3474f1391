"""Each command of the documentation exists with its options, and is typed somewhere or says why not."""

import re
import shlex

import click
import pytest
from tests.docs.sessions import SESSIONS
from tests.front_door.documented import doc_blocks, doc_commands, doc_pages

from tokenpeak.cli import tokenpeak

ENDS_EARLY = click.exceptions.Exit
"""What `--help` and `--version` end with while options are read."""
SHELL = [
    (page, line) for page in doc_pages() for block in doc_blocks(page) if block.language == "sh" for line in block.lines
]
INLINE = [(page, line) for page in doc_pages() for line in doc_commands(page)]


def own_words(line: str) -> list[list[str]]:
    """The arguments of each `tokenpeak` in a line of shell."""
    parts = [shlex.split(part) for part in re.split(r"&&|\|", line)]
    without_variables = [[word for word in words if not re.match(r"[A-Z_]+=", word)] for words in parts]
    return [words[1:] for words in without_variables if words and words[0] == "tokenpeak"]


def parsed(words: list[str]) -> None:
    """Read the words as the command line would, without doing what they say; a mistake is a UsageError."""
    context = tokenpeak.make_context("tokenpeak", list(words))
    command: click.Command = tokenpeak
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command, context = found, found.make_context(str(name), rest, parent=context)


@pytest.mark.parametrize(("page", "line"), [*SHELL, *INLINE])
def test_options_exist(page: str, line: str) -> None:
    """Every `tokenpeak` of the line is a command with these options; one in a sentence may leave out its arguments."""
    for words in own_words(line):
        try:
            parsed(words)
        except ENDS_EARLY as ended:
            assert 0 == ended.exit_code
        except click.MissingParameter:
            assert (page, line) in INLINE
        except click.BadParameter as error:
            # The reader's own file is not here.
            assert "does not exist" in error.message


def test_a_mistake_would_be_found() -> None:
    """The reading refuses what the command line refuses."""
    for line in ("tokenpeak plan --inventori x", "tokenpeak quality compere", "tokenpeak publish ftp www"):
        with pytest.raises(click.UsageError):
            parsed(own_words(line)[0])


def test_each_page_with_lines_to_type_has_a_session() -> None:
    """A page whose lines are typed is in the table of sessions, and no other."""
    typed = {
        block.page
        for page in doc_pages()
        for block in doc_blocks(page)
        if (block.language == "sh" and block.rule in ("", "walk", "node"))
        or (block.language == "python" and block.file is None)
    }

    assert typed == set(SESSIONS)
