"""An engine's log, an archive or a node holds a text over which one of our patterns takes the square of its length.

`Failed core proc(s): {` and 130,000 quotes held the interpreter's lock: the whole controller stood still, and the lease
of another node lapsed. Every pattern of the package is tried over repetitions of what stands in it. A library's parser
is one too: one line of 512,000 labels on an engine's page of metrics took an hour.
"""

import dataclasses
import importlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from tokenpeak import bounded, paths
from tokenpeak.errors import TokenpeakError
from tokenpeak.loadgen.http import metrics_page

ROOT = paths.ROOT / "analysis"
SIGNS = ["a", "0", " ", "'", "-", ".", "/", "{", ":", "="]
SHORT, LONG = 400, 4000
SLOW_S = 0.0001
"""A pattern that reads a short text as often as it has letters takes longer."""
SQUARE = 8
"""Four times the text takes so many times as long: of one that reads it once, 4; of one that takes the square, 16."""
MOST_RUNS = 12


def test_no_pattern_takes_the_square_of_a_text() -> None:
    """Of those that search; those that match from a text's beginning are tried from there."""
    slow = [
        f"{where}: {text[:60]!r}"
        for (pattern, method), where in patterns().items()
        for text in texts(pattern)
        if cpu_s(pattern, method, repeated(text, SHORT)) > SLOW_S and is_square(pattern, method, text)
    ]

    assert [] == slow


@cache
def patterns() -> dict[tuple[re.Pattern[Any], str], str]:
    """Each compiled pattern of the package that stands by a name, the method that it is used by, and its name."""
    found: dict[tuple[re.Pattern[Any], str], str] = {}
    for path in sorted((ROOT / "tokenpeak").rglob("*.py")):
        source = path.read_text() if "shipped" not in path.parts else ""
        if "re.compile(" not in source:
            continue
        module = importlib.import_module(_module(path))
        for name, value in vars(module).items():
            used = {*re.findall(rf"\b{name}\.(\w+)\(", source)}
            method = "match" if used and used <= {"match", "fullmatch"} else "finditer"
            for pattern in held(value):
                found.setdefault((pattern, method), f"{module.__name__}.{name}")
    assert len(found) > 100
    return found


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def held(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value: a table of them, or of records with one."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | dict | frozenset):
        for each in value.values() if isinstance(value, dict) else value:
            yield from held(each, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from held(getattr(value, field.name, None), depth - 1)


def texts(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Beginnings and what is repeated behind them: the pattern's own literals, with signs behind them or without."""
    literals = sorted(dict.fromkeys(runs(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))), key=len)
    literals = literals[-MOST_RUNS:]
    longest = literals[-1] if literals else ""
    joined = [literal + sign for literal in ("A", *literals) for sign in SIGNS]
    return [("", text) for text in (*SIGNS, *literals, *joined)] + [(longest, sign) for sign in SIGNS]


def runs(tree: Any) -> Iterator[str]:
    """The literal texts of a parsed pattern."""
    run = ""
    for operation, value in tree:
        kind = str(operation)
        if kind == "LITERAL":
            run += chr(value)
            continue
        if run:
            yield run
            run = ""
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from runs(value[2])
        elif kind == "SUBPATTERN":
            yield from runs(value[3])
        elif kind == "BRANCH":
            for each in value[1]:
                yield from runs(each)
        elif kind in ("ASSERT", "ASSERT_NOT"):
            yield from runs(value[1])
    if run:
        yield run


def repeated(text: tuple[str, str], size: int) -> str:
    before, piece = text
    return before + piece * (size // len(piece))


def cpu_s(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """The processor time of a search through a text."""
    given = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if method == "match":
        pattern.match(given)
    else:
        for _ in pattern.finditer(given):
            pass
    return time.process_time() - began


SHAPES = {
    "metrics: labels": lambda size: page("{", lambda number: f'a{number}="",', "} 1", size),
    "metrics: quotes": lambda size: page('{a="', lambda _: '\\"', '"} 1', size),
    "metrics: backslashes": lambda size: page('{a="', lambda _: "\\\\", '"} 1', size),
    "metrics: blanks": lambda size: page("", lambda _: " ", "1", size),
    "metrics: of others": lambda size: page("x{", lambda number: f'a{number}="",', "} 1", size),
    "metrics: comments": lambda size: "# HELP " * (size // 7),
    "metrics: lines": lambda size: 'vllm:num_requests_running{engine="0"} 1\n' * (size // 40),
    "JSON: lists": lambda size: "[" * size,
    "JSON: keys": lambda size: "{" + ",".join(f'"{number}":1' for number in range(size // 10)) + "}",
    "JSON: digits": lambda size: "9" * size,
    "JSON: quotes": lambda size: '"' + '\\"' * (size // 2) + '"',
    "YAML: lists": lambda size: "- " * (size // 20),
    "YAML: mapping": lambda size: "".join(f"a{number}: 1\n" for number in range(size // 200)),
    "YAML: quotes": lambda size: '"' + '\\"' * (size // 20),
}
"""Texts of a size for the parsers of libraries that read foreign texts."""
PARSER_SIZES = (1 << 16, 1 << 18)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_library_takes_the_square_of_a_text(shape: str, tmp_path: Path) -> None:
    """Of four times the text it takes four times as long, or it is refused."""
    once, more = (min(parsed_s(shape, SHAPES[shape](size), tmp_path) for _ in range(2)) for size in PARSER_SIZES)

    assert more < 0.1 or more < SQUARE * once


def parsed_s(shape: str, text: str, folder: Path) -> float:
    """The processor time of the parser that reads such texts; whether it refuses them is no matter here."""
    given = folder / "given"
    given.write_text(text)
    parsers: dict[str, Callable[[], object]] = {
        "metrics": lambda: metrics_page.parse(text),
        "JSON": lambda: bounded.parse_json(text.encode(), "given"),
        "YAML": lambda: bounded.read_yaml(given),
    }
    began = time.process_time()
    with suppress(ValueError, TokenpeakError):
        parsers[shape.partition(":")[0]]()
    return time.process_time() - began


def page(before: str, piece: Callable[[int], str], after: str, size: int) -> str:
    """A page of metrics with one line of such pieces."""
    name = "" if before.startswith("x") else "vllm:num_requests_running "
    return f"{name}{before}{''.join(map(piece, range(size // len(piece(0)))))}{after}\n"


def is_square(pattern: re.Pattern[Any], method: str, text: tuple[str, str]) -> bool:
    once, more = (min(cpu_s(pattern, method, repeated(text, size)) for _ in range(2)) for size in (LONG, 4 * LONG))
    return more > SQUARE * once
