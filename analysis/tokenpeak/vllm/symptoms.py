"""Symptoms of a failed start: the table of data/errors.toml, and what its sentences look like."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "data" / "errors.toml"
_NUMBER = r"[\d.,]+(?: [KMGT]?i?B)?"


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """An error that the log can show. `says` is filled from the pattern's named groups; `do` is the advice."""

    cause: str
    pattern: re.Pattern[str]
    says: str
    do: str
    sites: tuple[str, ...]
    literal: str
    is_general: bool = False
    """It shows what failed and not why: it counts only where the log shows no other symptom."""


@cache
def symptoms() -> tuple[Symptom, ...]:
    """The table, read once."""
    return tuple(
        Symptom(**{**row, "pattern": re.compile(row["pattern"]), "sites": tuple(row["sites"])})
        for row in tomllib.loads(TABLE.read_text())["symptom"]
    )


def is_own_sentence(text: str) -> bool:
    """Whether a text is what a symptom says, with nothing but numbers in it: none of its words are the log's."""
    return any(pattern.fullmatch(text) for pattern in _own_sentences())


@cache
def _own_sentences() -> tuple[re.Pattern[str], ...]:
    parts = (re.split(r"\{\w+\}", symptom.says) for symptom in symptoms())
    return tuple(re.compile(_NUMBER.join(map(re.escape, each))) for each in parts)
