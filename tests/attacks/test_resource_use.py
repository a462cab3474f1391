"""Somebody sends what costs time or memory without end: a log, an archive, an answer, a word of a request, a silence.

Every pattern of the package is tried over repetitions of what stands in it: one over 130,000 quotes held the whole
controller still. Whoever reads what others send asks for so much and no more.
"""

import dataclasses
import importlib
import io
import json
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.node.conftest import Node

from tokenpeak import paths
from tokenpeak.node import __main__
from tokenpeak.node.machine import words
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol import requests
from tokenpeak.report.site import live

ROOT = paths.ROOT / "analysis"
SIGNS = ["a", "0", " ", "'", "-", ".", "/", "{", ":", "="]
SHORT, LONG = 400, 4000
SLOW_S = 0.0001
"""A pattern that reads a short text as often as it has letters takes longer."""
LONGER = 8
SQUARE = 24
"""A text `LONGER` times as long takes so many times the time: of a pattern that reads it once, 8; of a square, 64."""
ROUNDS = range(2, 7)
"""How often a pattern is measured. What else runs here only adds to a time, so that the least one is its own."""
MOST_LITERALS = 12


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
    """Beginnings and what is repeated behind them: the pattern's own words, with signs behind them or without."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    plain = re.sub(r"\\[AbBdDsSwWZ]|[^\w ./:=\"'<>@#-]", "|", source)
    literals = sorted({word for word in plain.split("|") if word}, key=len)[-MOST_LITERALS:]
    joined = [literal + sign for literal in ("A", *literals) for sign in SIGNS]
    longest = literals[-1] if literals else ""
    return [("", text) for text in (*SIGNS, *literals, *joined)] + [(longest, sign) for sign in SIGNS]


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


def is_square(pattern: re.Pattern[Any], method: str, text: tuple[str, str], size: int = LONG) -> bool:
    short, long = repeated(text, size), repeated(text, LONGER * size)
    once = more = float("inf")
    for done in range(1, ROUNDS.stop):
        once = min(once, cpu_s(pattern, method, short))
        more = min(more, cpu_s(pattern, method, long))
        if done >= ROUNDS.start and more <= SQUARE * once:
            return False
    return True


def test_a_square_is_known() -> None:
    """Of a pattern that reads each beginning to the text's end, and of one that does not."""
    text = ("", "a")

    assert is_square(re.compile("a*b"), "finditer", text, size=1000)
    assert not is_square(re.compile("a{1,9}b"), "finditer", text, size=1000)


SECRET = "s3cret-" + "V" * 40
SIZE = 1 << 18
MOST_CPU_S = 1.0
PIECES = [
    *("-", "--a", "a", "a-", "a.", "key", "key ", "key=", "key = ", "-key ", "--key key ", "api_k", "api-", "secret"),
    *("passw", "password : ", "-pat ", "_pat", "a://", "://a", "a://a@", "a+", "sk-", "sk-aaaa ", "hf_", "xoxa-"),
    *("Bearer ", " ", "\t\n", "\x00", '"', "key'", 'key"  ', "token:", "credential", "\u202e", "--api-key\n"),
]
SHOWS: dict[str, tuple[Callable[[str], object], int]] = {
    "value": (words.shown_value, SIZE),
    "output": (words.shown_output, SIZE),
    "answer": (words.shown_answer, SIZE),
    "command": (lambda text: words.shown_command(["x", text, "--key", text]), SIZE >> 5),
    "words": (lambda text: words.hidden_words([text, "--a", text]), SIZE >> 5),
    "variables": (lambda text: words.hidden_env({"A": text}), SIZE >> 5),
}
"""What shows a word, and of which size."""


@pytest.mark.parametrize("show", sorted(SHOWS))
def test_long_word(show: str) -> None:
    """Of many kinds: each is done within the processor time that its length takes, not its square."""
    shows, size = SHOWS[show]
    for piece in PIECES:
        text = piece * (size // len(piece))
        for each in (text, f"-{text} x"):
            assert action_cpu_s(lambda each=each: shows(each)) < MOST_CPU_S * size / SIZE + 0.1, piece


def action_cpu_s(action: Callable[[], object]) -> float:
    """The processor time of an action."""
    began = time.process_time()
    action()
    return time.process_time() - began


@pytest.mark.parametrize("before", [0, 490, 16_384])
@pytest.mark.parametrize(
    "secret",
    [
        f"--api-key {SECRET}",
        f"api_key={SECRET}",
        f'"api_key": "{SECRET}"',
        f"https://user:{SECRET * 500}@host/x",
        f"--api-key {SECRET * 500}",
        f"Bearer {SECRET}",
        f"hf_{SECRET}",
        f"--api-key\n\n{SECRET}",
    ],
)
@pytest.mark.parametrize("filler", ["x" * 60 + " ", "\n"])
def test_cut_through_a_secret(secret: str, before: int, filler: str) -> None:
    """Wherever a text is cut, from its beginning or its end, no part of a secret is shown."""
    lead = (filler * (before // len(filler) + 1))[:before]
    for text in (f"{lead} {secret} {lead}", f"{lead} {secret} {filler * 6000}", f"{filler * 6000} {secret} {lead}"):
        for found in (words.shown_output(text), words.shown_answer(text), words.shown_value(text)):
            assert "VVV" not in found
            assert "s3cr" not in found


class Endless(io.StringIO):
    """A text whose line never ends; it counts what it gave, and refuses to give all of it."""

    given = 0

    def readline(self, size: int | None = -1, /) -> str:
        """So many characters."""
        assert size is not None
        assert 0 < size <= 1 << 20, "whoever asks for a whole line gets all of it"
        self.given += size
        return "x" * size

    def __next__(self) -> str:
        raise AssertionError("whoever asks for a whole line gets all of it")


def test_line_of_the_lease(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease ends with an error after a bound, and one that is too long by little is refused as well."""
    endless = Endless()
    monkeypatch.setattr(sys, "stdin", endless)
    without_end = node.run("lease")["error"]["text"]
    beat = json.dumps({"number": 1, "holder": "h" * requests.HEARTBEAT_BYTES})
    monkeypatch.setattr(sys, "stdin", io.StringIO(beat))
    long = node.run("lease")["error"]["text"]

    assert endless.given <= 2 * requests.HEARTBEAT_BYTES
    assert "has more than 16384 characters" in without_end
    assert "has more than 16384 characters" in long


CONNECTIONS = 12


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections that got a thread."""
    made: list[object] = []
    setup = live._Handler.setup

    def noted(handler: live._Handler) -> None:
        made.append(handler)
        setup(handler)

    monkeypatch.setattr(live._Handler, "setup", noted)
    return made


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that is soon tired of who says nothing, and has few threads."""
    monkeypatch.setattr(live._Handler, "timeout", 0.5)
    monkeypatch.setattr(live, "MOST_READERS", threading.active_count() + 3)
    (tmp_path / "index.html").write_text("page")
    listening = live.server(tmp_path, "127.0.0.1", 0, lambda: b"")
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield listening.server_address[1]
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_who_says_nothing_is_left(port: int, handled: list[object]) -> None:
    """No more threads than readers may be, those that are silent end, and others are answered then."""
    with ExitStack() as held:
        places = [("127.0.0.1", port)] * CONNECTIONS
        silent = [held.enter_context(socket.create_connection(place, timeout=10)) for place in places]
        assert all(b"" == each.recv(1) for each in silent)
    ended_by = time.monotonic() + 10
    while threading.active_count() >= live.MOST_READERS and time.monotonic() < ended_by:
        time.sleep(0.01)

    assert 0 < len(handled) < CONNECTIONS
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=10) as answer:
        assert b"page" == answer.read()


def test_defect_of_the_script(tmp_path: Path) -> None:
    """Whatever fails, who may only run the command gets an answer; root sees where."""
    folder = tmp_path / "state"
    State.make(folder)
    with patch.object(__main__, "answer", side_effect=ValueError("bad\n--api-key s3cret")):
        result, exit_status = __main__.answered("probe", folder, None, limited=True)
        with pytest.raises(ValueError, match="bad"):
            __main__.answered("probe", folder, None)

    assert (3, "failed") == (exit_status, result["error"]["code"])
    assert "ValueError: bad" in result["error"]["text"]
    assert "s3cret" not in json.dumps(result)
