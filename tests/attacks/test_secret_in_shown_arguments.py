"""Whoever may ask `status` or `probe`, or survey a machine, reads the arguments of what serves there.

Flags whose names say that they are secret were left out, and secrets in other words shown in full: in a URL, in an
object of options, or known by their form alone.
"""

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.words import without_secrets
from tokenpeak.node.probe import machine
from tokenpeak.node.production import servers

SECRET = "hunter2secret"
WORDS = [
    "m",
    "--otlp-traces-endpoint",
    f"http://me:{SECRET}@otlp.example/v1",
    "--model-loader-extra-config",
    f'{{"aws_secret_access_key": "{SECRET}"}}',
    "--kv-transfer-config",
    f'{{"redis_password": "{SECRET}"}}',
    f"--x=hf_{SECRET}",
    f"WANDB_PASSWORD={SECRET}",
    "--api-key",
    SECRET,
    "--seed",
    "7",
]


def test_words() -> None:
    """Secret flags are left out, other secrets are hidden, and the rest stays as it is."""
    shown = without_secrets(WORDS)

    assert SECRET not in " ".join(shown)
    assert ["m", "--seed", "7"] == [shown[0], *shown[-2:]]
    assert shown == without_secrets(shown), "which an apply compares with what runs"


def test_status_and_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have production's arguments from the process that listens."""
    monkeypatch.setattr(sockets, "listeners", lambda *_: ["7 vllm"])
    monkeypatch.setattr(machine, "command_line", lambda _: ["vllm", "serve", *WORDS])

    shown = machine.served_with("127.0.0.1", 8000)

    assert shown[0] == "m"
    assert SECRET not in " ".join(shown)


def test_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """So has a survey, with variables too; it says what a draft of an inventory lacks."""
    found: Any = servers.Machine.__new__(servers.Machine)
    found.engines, found.containers = {os.getpid(): ["vllm", "serve", *WORDS]}, {}
    monkeypatch.setattr(servers, "control_group", lambda _: "/user.slice")
    monkeypatch.setattr(servers, "_environment_of", lambda _: {"HF_ENDPOINT": f"http://me:{SECRET}@hub.example"})

    server = found._server(os.getpid())

    assert SECRET not in " ".join([*server.argv, *server.env.values()])
    assert ["command line", "environment"] == [note.split("its ")[1].split(" has")[0] for note in server.notes]


HIDING = {"without_secrets", "hidden_words", "served_with"}
"""`served_with` is what `without_secrets` leaves."""
FIELDS = {"FoundServer": "argv", "Production": "arguments"}


def test_no_other_function_shows_words() -> None:
    """What an answer says of a command line is what one of these functions gives."""
    calls = [
        (path.name, each, keyword)
        for path in sorted(Path(servers.__file__).parents[1].rglob("*.py"))
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        for keyword in each.keywords
        if keyword.arg is not None and keyword.arg == FIELDS.get(each.func.id)
    ]

    assert len(calls) >= 3
    assert [] == [(name, each.lineno) for name, each, keyword in calls if not HIDING & _called(keyword.value)]


def _called(value: ast.AST) -> set[str]:
    functions = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in functions}
