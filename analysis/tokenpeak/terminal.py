"""Text made safe for a terminal, and `echo`, which prints it; beside `console.SafeConsole` the only way out.

A name, a log line or an error may come from a node, an engine, an archive or an import. A terminal obeys what is
hidden in it: it retitles its window, rewrites lines above, answers as if the user had typed.
"""

import re
import sys
import traceback
from types import TracebackType
from typing import Any

import click

from tokenpeak.invocation import as_typed

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 and C1 controls, and what reorders, joins or hides text: bidirectional and zero-width characters, tags."""


def visible(text: str) -> str:
    """The text with every hidden character written out by its code; line ends of Windows are line ends."""
    return HIDDEN.sub(_written_out, text.replace("\r\n", "\n"))


def visible_log(text: str) -> str:
    """A log likewise: a progress bar's carriage returns are line ends."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def echo(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a message, safe for a terminal, with commands as they are typed here."""
    click.echo(visible(as_typed(str(message))), err=err, nl=nl)


def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
    """What is printed of an error that nothing caught."""
    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))
