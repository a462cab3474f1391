"""Fields of the requests and answers between controller and node, each with the check that reads it.

A check returns the value as its type, or raises ValueError with what is wrong, in words that follow the field's name.
"""

from __future__ import annotations

import re
from dataclasses import field, fields
from typing import Any, Callable, Pattern, TypeVar

from tokenpeak.node.machine import words
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import one_line, shown_value

Check = Callable[[Any], Any]
Kind = TypeVar("Kind")

WORD = 200
TEXT = 100_000
SAMPLES_LIMIT = 1_000_000
COLUMNS_LIMIT = 1000
VARIABLES_LIMIT = 10_000
SECONDS_MAX = 31 * 86_400.0
ARGUMENTS_MAX = 2_000
REQUEST_VARIABLES_MAX = 200
SECRET_NAME = re.compile("secret-[0-9a-f]{8}")
_CHECK = "check"


def bound(check: Check, default: Any = None, *, shown: bool = True) -> Any:
    """A dataclass field that `check` reads; `default` stands for a value that is missing or not usable."""
    return field(default=default, metadata={_CHECK: check}, repr=shown)


def mapped(check: Check) -> Any:
    """A dataclass field that `check` reads; an empty object where nothing is given."""
    return field(default_factory=dict, metadata={_CHECK: check})


def needed(check: Check) -> dict[str, Check]:
    """Metadata of a dataclass field that `check` reads and that must be there."""
    return {_CHECK: check}


def checks(kind: type[Any]) -> dict[str, Check]:
    """The check of each field of a type that is sent."""
    return {one.name: one.metadata[_CHECK] for one in fields(kind) if _CHECK in one.metadata}


def usable(kind: type[Any], given: Json) -> tuple[Json, dict[str, str]]:
    """The fields of a JSON object that can be used, and why not of each that is there and cannot."""
    values: Json = {}
    wrong: dict[str, str] = {}
    for key, check in checks(kind).items():
        if key in given:
            try:
                values[key] = check(given[key])
            except (ValueError, RecursionError) as error:
                wrong[key] = str(error)
    return values, wrong


def _not(wanted: str, value: Any) -> ValueError:
    return ValueError(f"is {shown_value(value)}, not {wanted}")


def _right(value: Any, wrong: str | None) -> Any:
    """The value; raises ValueError where something is wrong with it."""
    if wrong is not None:
        raise ValueError(wrong)
    return value


def word(value: Any) -> str:
    """A name, an id or a version: no hidden character, and at most WORD characters."""
    _right(value, words.wrong_word(value))
    if len(value) > WORD:
        raise ValueError(f"has {len(value)} characters, and at most {WORD} are possible")
    return str(value)


def name(value: Any) -> str:
    """A name that is neither empty nor long."""
    return str(_right(value, words.wrong_name(value)))


def model_name(value: Any) -> str:
    """A model's name or folder."""
    return str(_right(value, words.wrong_name(value) or words.wrong_place(value)))


def matching(pattern: Pattern[str], wanted: str) -> Check:
    """A text of a pattern, which `wanted` names."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _not(wanted, value)
        return value

    return read


trial_name = matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}"), "letters, digits and ._-")
secret_name = matching(SECRET_NAME, "the name of a secret")
key_nonce = matching(re.compile("[0-9a-f]{32,64}"), "32 to 64 hexadecimal digits")
sha256 = matching(re.compile("[0-9a-f]{64}"), "a SHA-256")


def sentence(value: Any) -> str:
    """What is said to people, as a part of one line."""
    return one_line(text(TEXT)(value))


def text(limit: int = TEXT) -> Check:
    """A text of at most so many characters as it is: a log, a file's content, a program's argument."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > limit:
            raise _not(f"a text of at most {limit} characters", value)
        return value

    return read


def number(low: float = -1e308, high: float = 1e308, wanted: str = "a number within its bounds") -> Check:
    """A finite number between the bounds."""

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise _not(wanted, value)
        return float(value)

    return read


def time_s(value: Any) -> float:
    """A time that a request gives: more than 0 and at most SECONDS_MAX."""
    if type(value) not in (int, float):
        raise _not("a number of seconds", value)
    if not 0 < value <= SECONDS_MAX:
        raise ValueError(f"is {shown_value(value)}; more than 0 and at most {SECONDS_MAX:g} s are possible")
    return float(value)


def integer(low: int = -(1 << 63), high: int = (1 << 63) - 1) -> Check:
    """A whole number between the bounds."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _not(f"a whole number from {low} to {high}", value)
        return value

    return read


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _not("true or false", value)
    return value


def one_of(*choices: str) -> Check:
    """One of these words."""

    def read(value: Any) -> str:
        if value not in choices:
            raise _not(f"one of {', '.join(choices)}", value)
        return str(value)

    return read


def optional(check: Check) -> Check:
    """Null, or what the check reads."""
    return lambda value: None if value is None else check(value)


def several(check: Check, limit: int) -> Check:
    """A list of at most so many entries, as a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > limit:
            raise _not(f"a list of at most {limit} entries", value)
        return tuple(map(check, value))

    return read


def arguments(value: Any) -> list[str]:
    """A command line."""
    if not isinstance(value, list) or not 0 < len(value) <= ARGUMENTS_MAX:
        raise ValueError(f"is not a list of 1 to {ARGUMENTS_MAX} words")
    for place, one in enumerate(value, 1):
        if wrong := words.wrong_word(one):
            raise ValueError(f"has a word, number {place}, that {wrong}")
    return value


def edited(value: Any) -> list[str | int]:
    """A command line whose words may be numbers: of the words of the present one that stay."""
    if not isinstance(value, list) or any(type(one) is not int and not isinstance(one, str) for one in value):
        raise ValueError("are neither words nor places of words")
    if any(type(one) is int and not 0 <= one < ARGUMENTS_MAX for one in value):
        raise ValueError(f"have the place of a word that is not 0 to {ARGUMENTS_MAX - 1}")
    arguments([str(one) for one in value])
    return value


def request_variables(value: Any) -> dict[str, str]:
    """Variables that a request sets."""
    if not isinstance(value, dict) or len(value) > REQUEST_VARIABLES_MAX:
        raise ValueError(f"is not an object of at most {REQUEST_VARIABLES_MAX} variables")
    for key, one in value.items():
        if not words.VARIABLE.fullmatch(key):
            raise ValueError(f"has {shown_value(key)}, which is not the name of an environment variable")
        if wrong := words.wrong_word(one, words.WORD_BYTES - len(key) - 1):
            raise ValueError(f"has {key}, whose value {wrong}")
    return value


def edited_environment(value: Any) -> dict[str, str | None]:
    """Variables that a request sets, or takes away where the value is null."""
    if not isinstance(value, dict):
        raise ValueError("is no object of variables")
    request_variables({key: "" if one is None else one for key, one in value.items()})
    return value


def variables(value: Any) -> dict[str, str]:
    """Variables of an environment that a node reports."""
    if not isinstance(value, dict) or len(value) > VARIABLES_LIMIT:
        raise _not(f"an object of at most {VARIABLES_LIMIT} variables", value)
    read = text()
    return {read(key): read(each) for key, each in value.items()}


def mapping(value: Any) -> Json:
    """A JSON object, whatever it holds."""
    if not isinstance(value, dict):
        raise _not("an object", value)
    return value


def tree(value: Any) -> Json:
    """A JSON object whose words are all right."""
    return dict(_right(mapping(value), words.wrong_tree(value)))


def columns(value: Any) -> dict[str, tuple[float | None, ...]]:
    """Named columns of samples, null where one is missing."""
    if not isinstance(value, dict) or len(value) > COLUMNS_LIMIT:
        raise _not(f"an object of at most {COLUMNS_LIMIT} columns", value)
    column = several(optional(number()), SAMPLES_LIMIT)
    return {word(key): column(samples) for key, samples in value.items()}


def entries(**each: Check) -> Check:
    """A JSON object with exactly these keys, as it is."""

    def read(value: Any) -> Json:
        if not isinstance(value, dict) or value.keys() != each.keys():
            raise _not(f"{{{', '.join(each)}}}", value)
        for key, check in each.items():
            try:
                check(value[key])
            except ValueError as error:
                raise ValueError(f"has {key} that {error}") from error
        return value

    return read


def structure(kind: type[Kind]) -> Callable[[Any], Kind]:
    """A JSON object with exactly the fields of `kind`, as one of that kind."""
    own = checks(kind)

    def read(value: Any) -> Kind:
        if not isinstance(value, dict) or value.keys() != own.keys():
            raise _not(f"an object of {', '.join(own)}", value)
        return kind(**{key: check(value[key]) for key, check in own.items()})

    return read
