"""Errors a user can act on, and the exit statuses of the command line.

    TokenpeakError          what happened, the value, and what to do; the command line prints it and exits 1
    ├── InputError          what the user gave is wrong; the command line exits 2
    │   ├── SpecError       a sweep spec that does not say what it must
    │   ├── InventoryError  an inventory, or a node of it, that cannot be used
    │   ├── FactsError      hardware, model or engine facts that are missing or make no sense
    │   ├── PlanError       nothing feasible, or a plan that breaks a rule
    │   └── WorkloadError   a workload that cannot be offered as it was given; a LoadError too
    ├── StoppedError        ended by the user before anything was begun; the command line exits 130
    ├── FencedError         another controller has the sweep; the command line exits 5
    ├── NodeError           a node that could not be reached, probed or restored
    ├── LoadError           a load that could not be offered
    ├── ArchiveError        a raw file that cannot be read, or is of a newer format
    ├── DatabaseError       Postgres that cannot be reached, or whose tables cannot be made
    └── ReportError         a page that could not be made
        └── IncompleteSiteError  a site without the archives that could not be shown

A failed request, a failed launch and an invalid run are rows in the archive, never exceptions.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path

from tokenpeak.node.machine.words import one_line


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
    DEFECT = 70
    """An error that TokenPeak did not expect: its last line names the file to send."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, SIGTERM or a closed terminal, in order."""


class TokenpeakError(Exception):
    """Something a user can mend; its text says what happened, the value, and what to do."""

    exit_status = ExitStatus.ERROR


class InputError(TokenpeakError):
    """Something that the user gave and that is wrong."""

    exit_status = ExitStatus.USAGE


class SpecError(InputError):
    """A sweep spec that does not say what it must."""


class InventoryError(InputError):
    """An inventory, or a node of it, that cannot be used."""


class FactsError(InputError):
    """Hardware, model or engine facts that are missing or make no sense."""


class PlanError(InputError):
    """Nothing feasible, or a plan that breaks a rule."""


class StoppedError(TokenpeakError):
    """Ended by the user before anything was begun."""

    exit_status = ExitStatus.INTERRUPTED


class FencedError(TokenpeakError):
    """Another controller has the sweep, so that this one may not go on with it."""

    exit_status = ExitStatus.FENCED


class NodeError(TokenpeakError):
    """A node that could not be reached, probed or restored."""


class LoadError(TokenpeakError):
    """A load that could not be offered."""


class WorkloadError(LoadError, InputError):
    """A workload that cannot be offered as it was given: its file, its data set, its options."""


class ArchiveError(TokenpeakError):
    """A raw file that cannot be read, or is of a newer format."""


class DatabaseError(TokenpeakError):
    """Postgres that cannot be reached, or whose tables cannot be made."""


class ReportError(TokenpeakError):
    """A page that could not be made."""


class IncompleteSiteError(ReportError):
    """A site that is in its place, at `page`, without the archives of these names, which could not be shown."""

    def __init__(self, words: str, *, page: Path, names: tuple[str, ...]) -> None:
        super().__init__(words)
        self.page = page
        self.names = names


_SHOWN = 20


def suggestion(word: str, words: Iterable[str]) -> str:
    """A sentence naming the known words nearest to `word`, or the first of them when none is near."""
    names = sorted(map(one_line, words))
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"Known: {', '.join(names[:_SHOWN])}{more}." if names else "None is known."
