"""Commands in messages, as the reader can type them: `make …` in a checkout, `tokenpeak …` from an installed wheel.

Messages are written for a checkout, also those of the node script, which knows neither. What prints them translates.
"""

import re

from tokenpeak import paths

_OPTIONS = {
    "INVENTORY": "--inventory {}",
    "SWEEP": "--sweep {}",
    "RESUME": "--resume {}",
    "PARALLEL": "--parallel {}",
    "INSTALL_USER": "--user {}",
    "ROTATE": "--rotate",
    "YES": "--yes",
    "NODE": "--node {}",
    "SERIAL": "--serial {}",
    "DESPITE": "--despite {}",
    "DRY_RUN": "--dry-run",
    "KEEP_EVERYTHING": "--keep-everything",
    "FORMAT": "--format {}",
    "TEXTS": "--texts",
    "ARCHIVE": "{}",
    "SWEEP_ID": "{}",
    "TARGET": "{}",
    "DEST": "{}",
    "FILES": "{}",
}
"""A variable of the Makefile → what its target gives to the command."""

TARGETS = (
    "apply|archive|calibrate|explain|export|import|ingest|install|plan|probe|publish|replay|report|restore|rollback"
    "|serve|status|sweep|uninstall"
)
"""The targets that are commands of the same name."""

_VARIABLE = rf"({'|'.join(_OPTIONS)})=(\"[^\"]*\"|[^\s`'\"]*[^\s`'\".,;:)])"
_COMMAND = re.compile(rf"\bmake ({TARGETS})\b((?: {_VARIABLE})*)")


def as_typed(text: str, *, is_installed: bool = paths.IS_INSTALLED) -> str:
    """`text` with the commands that it names as they can be typed here."""
    return _COMMAND.sub(_command, text) if is_installed and "make " in text else text


def _command(found: re.Match[str]) -> str:
    options = [_OPTIONS[name].format(value) for name, value in re.findall(_VARIABLE, found[2])]
    return " ".join(["tokenpeak", found[1], *options])
