"""Exit statuses of the command line: one table for all commands."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of commands, for scripts."""

    GOOD = 0
    """All that was asked was done."""
    ERROR = 1
    """Something failed: a node, a launch, a server, a database, a file."""
    USAGE = 2
    """Options, a spec, an inventory or facts that were given are wrong; nothing was begun."""
    MISSED = 3
    """The measurement misses the SLO, or regressed."""
    INVALID = 4
    """The measurement is invalid, or not comparable."""
    FENCED = 5
    """Another controller has the sweep: one that was stopped touches nothing any more, one that would resume waits."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, SIGTERM or a closed terminal, in order."""
