"""Error of a node command, in a sentence that a user can act on."""

from __future__ import annotations


class ScriptError(Exception):
    """A code that programs match, and a text: what happened, the value, and what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
