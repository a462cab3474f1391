"""A server sends an answer without end, or a byte now and then: all of it would be in the controller's memory.

A hub's `config.json` of 700 MB took 3.8 GiB. One function asks, within bounds of bytes and of time; nothing else does.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tokenpeak import paths

PACKAGE = paths.ROOT / "analysis" / "tokenpeak"
ASKS = "http_answer.py"
VERBS = {"get", "post", "put", "delete", "head", "patch", "options", "request", "stream", "send", "build_request"}


def test_one_function_asks() -> None:
    """No other module sends a request by httpx, and its clients that wait are made nowhere: they have no such limit."""
    found = [f"{path.relative_to(PACKAGE)}: {words}" for path in PACKAGE.rglob("*.py") for words in asking(path)]

    assert [f"{ASKS}: client.stream"] == found


def asking(path: Path) -> Iterator[str]:
    """What asks in a module."""
    source = path.read_text()
    if "import httpx" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        words = ast.unparse(node)
        owner = words.rpartition(".")[0].rpartition(".")[2]
        if words == "httpx.Client" or (node.attr in VERBS and owner.strip("_").endswith(("client", "httpx"))):
            yield words
