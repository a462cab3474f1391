"""Bounds of an answer's values: readers that return the value as its type, or raise ValueError."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Callable, TypeVar

from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import one_line, wrong_word

Reader = Callable[[Any], Any]
Kind = TypeVar("Kind")

WORD = 200
TEXT = 100_000
SAMPLES_LIMIT = 1_000_000
COLUMNS_LIMIT = 1000
VARIABLES_LIMIT = 10_000
_READ = "read"


def bound(reader: Reader, default: Any = None) -> Any:
    """A dataclass field whose value `reader` reads; `default` stands for a value that is missing or not usable."""
    return field(default=default, metadata={_READ: reader})


def readers(kind: type[Any]) -> dict[str, Reader]:
    """The reader of each field of a type that is sent."""
    return {one.name: one.metadata[_READ] for one in fields(kind) if _READ in one.metadata}


def word(value: Any) -> str:
    """A name, an id or a version: no hidden character, and at most WORD characters."""
    if wrong_word(value) or len(value) > WORD:
        raise ValueError
    return str(value)


def sentence(value: Any) -> str:
    """What is said to people, as a part of one line."""
    return one_line(text(TEXT)(value))


def text(limit: int = TEXT) -> Reader:
    """A text of at most so many characters as it is: a log, a file's content, a program's argument."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > limit:
            raise ValueError
        return value

    return read


def number(low: float = -1e308, high: float = 1e308) -> Reader:
    """A finite number between the bounds."""

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise ValueError
        return value  # type: ignore[no-any-return]

    return read


def integer(low: int = -(1 << 63), high: int = (1 << 63) - 1) -> Reader:
    """A whole number between the bounds."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return read


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(*words: str) -> Reader:
    """One of these words."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read


def optional(reader: Reader) -> Reader:
    """Null, or what the reader reads."""
    return lambda value: None if value is None else reader(value)


def several(reader: Reader, limit: int) -> Reader:
    """A list of at most so many entries, as a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > limit:
            raise ValueError
        return tuple(map(reader, value))

    return read


def mapping(value: Any) -> Json:
    """A JSON object, whatever it holds."""
    if not isinstance(value, dict):
        raise ValueError
    return value


def variables(value: Any) -> dict[str, str]:
    """Variables of an environment."""
    if not isinstance(value, dict) or len(value) > VARIABLES_LIMIT:
        raise ValueError
    read = text()
    return {read(name): read(each) for name, each in value.items()}


def columns(value: Any) -> dict[str, tuple[float | None, ...]]:
    """Named columns of samples, null where one is missing."""
    if not isinstance(value, dict) or len(value) > COLUMNS_LIMIT:
        raise ValueError
    column = several(optional(number()), SAMPLES_LIMIT)
    return {word(name): column(samples) for name, samples in value.items()}


def structure(kind: type[Kind]) -> Callable[[Any], Kind]:
    """A JSON object with exactly the fields of `kind`, as one of that kind."""
    own = readers(kind)

    def read(value: Any) -> Kind:
        if not isinstance(value, dict) or value.keys() != own.keys():
            raise ValueError
        return kind(**{name: reader(value[name]) for name, reader in own.items()})

    return read
