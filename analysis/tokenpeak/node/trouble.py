"""What keeps a node command from doing its work, in a sentence that a user can act on."""

from __future__ import annotations


class Trouble(Exception):  # noqa: N818 - it is told to the user under this name
    """A code that programs match, and a text: what happened, the value, and what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
