"""Somebody whose words root reads sends them without end: a line of the lease, an engine's file, a log.

A line of 629 MiB was all in root's memory. Each reader asks for so much and no more.
"""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.conftest import Node, node_in

from tokenpeak.node.machine import process_files, trust
from tokenpeak.node.protocol import frame, requests


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with node_in(tmp_path / "state") as made:
        yield made


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


def test_line_of_the_lease_that_is_no_text(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8 are an error in a sentence."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))

    assert "request" == node.run("lease")["error"]["code"]


def test_file_of_an_engine_that_has_no_end(tmp_path: Path) -> None:
    """A digest is made of no file of a terabyte, which one call makes; the end of one is read without the rest."""
    path = tmp_path / "vllm"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
        stream.seek(0, 2)
        stream.write(b"last words")

    assert trust.digest_of(path) is None
    assert b"last words" == trust.read_end(path, 10)
    assert b"words" == trust.read_end(path, 10, begin=(1 << 40) + 5)
    assert b"" == trust.read_end(tmp_path / "missing", 10)


def test_request_in_a_file(tmp_path: Path) -> None:
    """A request's file is not read beyond what a request may have."""
    path = tmp_path / "request.json"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)

    with pytest.raises(frame.ScriptError, match="more than 1048576 bytes"):
        frame.read(str(path))


def test_observation_of_too_many_readings(node: Node) -> None:
    """Two hours of production's page as often as it can be read would all be held in memory."""
    node.declare(production={"manager": "none", "url": "http://127.0.0.1:9"})

    answer = node.run("observe", {"seconds": 7000, "period_s": 1e-6})

    assert "at most 20000 readings" in answer["error"]["text"]


def test_what_a_process_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process may point its arguments at as much memory as it likes (PR_SET_MM_MAP)."""
    monkeypatch.setattr(process_files.os, "open", lambda *_: 0)
    monkeypatch.setattr(process_files.os, "close", lambda _: None)
    monkeypatch.setattr(process_files.os, "read", lambda _, size: b"x" * size)

    assert len(process_files.shown_by_kernel(1, "environ")) <= 2 * process_files.MOST_SHOWN_BYTES
