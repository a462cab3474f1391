"""Whoever sets a variable of the Makefile, by an exported name or a line to copy, runs commands as who types `make`.

`INVENTORY='$(shell id)'` was expanded by make, `INVENTORY='x; id'` run by its shell, and an exported `YES=1` answered
for an apply that was only to be shown. A value is one word of one command, or words of a list; what lets a target do
more counts from the command line alone.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tokenpeak import paths

MAKEFILE = (paths.ROOT / "Makefile").read_text()
READ = MAKEFILE.replace("\\\n", " ")
NAMES = {kind: re.search(rf"^{kind} := (.*)$", READ, re.MULTILINE)[1].split() for kind in ("VALUES", "LISTS", "ACTS")}  # type: ignore[index]
OWN = {"BIN", "CURDIR", "LISTS", "ACTS", "VALUES", "MAKEFILE_LIST", "PYTHON", "READY", "TOKENPEAK", "UV", "VENV"}
"""The Makefile's own. PYTHON is a program to run by its meaning."""
NEEDS_MORE = {"check", "clean", "lock", "notebook", "wheel"}
"""Targets that take none of these variables and whose programs are not played here."""
TARGETS = sorted({*re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE)} - NEEDS_MORE)
HOSTILE = [
    "; touch taken; `touch taken` $(touch taken) ' ; touch taken; '\" & touch taken | touch taken # \\",
    "$(shell touch taken)${shell touch taken}$(eval x:=$(shell touch taken))$(error taken)",
    "x\ntouch taken",
    "~/*; touch taken",
]
PLAYED = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" >> words
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, whose environment is there and whose programs note the words that they get."""
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    for name in (
        "requirements.lock",
        "pyproject.toml",
        "notebooks/requirements.lock",
        "tests/mutants/requirements.lock",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in (".tokenpeak/locked-uv/bin/uv", ".venv/.ready", ".venv/.jupyter", ".venv/.mutants"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".venv" / "bin").mkdir()
    for name in ("tokenpeak", "pytest", "python"):
        (tmp_path / ".venv" / "bin" / name).write_text(PLAYED)
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    return tmp_path


def made(checkout: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """How make ended there, in an environment with these variables."""
    own = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    argv = ["make", "--no-print-directory", *words]
    environment = {**own, "HOME": str(checkout / "home"), **variables}
    return subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def given(hostile: str) -> dict[str, str]:
    """Each variable with its hostile value, which begins with the variable's name."""
    return {name: f"{name}{hostile}" for kind in ("VALUES", "LISTS") for name in NAMES[kind]}


@pytest.mark.parametrize("hostile", HOSTILE, ids=["shell", "make", "line end", "pattern"])
@pytest.mark.parametrize("way", ["typed", "exported"])
def test_a_value_is_a_word(checkout: Path, hostile: str, way: str) -> None:
    """Of every target, typed or exported: no command is run, and each word is whole behind its option."""
    variables = given(hostile)
    typed = [f"{name}={text}" for name, text in variables.items()] if way == "typed" else ["INVENTORY=x", "DEST=x"]

    done = made(checkout, *TARGETS, *typed, **({} if way == "typed" else variables))

    assert not (checkout / "taken").exists(), done
    assert 0 == done.returncode, done.stderr
    words = (checkout / "words").read_text().splitlines()
    whole = {variables[name].replace("\n", " ") for name in NAMES["VALUES"]}
    parts = {part for name in NAMES["LISTS"] for part in variables[name].split()}
    odd = [word for word in words if re.search("touch|taken|[;`]", word)]
    assert len(odd) > 20
    assert [] == [word for word in odd if not {word, word.partition("=")[2]} & (whole | parts)]
    assert (
        "INVENTORY=x" in done.stdout if way == "exported" else variables["INVENTORY"].replace("\n", " ") in done.stdout
    )


def test_nothing_exported_lets_a_target_act(checkout: Path) -> None:
    """Neither an apply nor a rollback is done, nothing more leaves, and nothing is published; typed, they do."""
    acting = dict.fromkeys(NAMES["ACTS"], "1")
    targets = ["apply", "rollback", "restore", "install", "report", "archive", "export"]
    exported = made(checkout, *targets, SWEEP_ID="s", **acting)
    nowhere = made(checkout, "publish", **acting)
    before = (checkout / "words").read_text().splitlines()
    made(checkout, *targets, "publish", "SWEEP_ID=s", *(f"{name}={text}" for name, text in acting.items()))
    after = (checkout / "words").read_text().splitlines()[len(before) :]

    assert 0 == exported.returncode, exported.stderr
    assert "Say where to" in nowhere.stderr
    options = {"--yes", "--accept", "--release", "--rotate", "--texts", "--keep-everything", "--despite=1"}
    assert set() == options & {*before}
    assert options <= {*after}


def test_a_list_is_words_and_a_place_at_home_is_found(checkout: Path) -> None:
    """Lists of words and of files, and what the shell of who types leaves to make."""
    for name in ("a.json", "c.json"):
        (checkout / name).touch()
    made(checkout, "import", "apply", "report", "SWEEP_ID=s", "NODE=n1 n2", "FILES=*.json ~/d", "ARCHIVE=~/my results")

    words = (checkout / "words").read_text().splitlines()
    home = f"{checkout}/home"
    assert ["tokenpeak", "import", "a.json", "c.json", f"{home}/d"] == words[:5]
    assert ["tokenpeak", "apply", "s", "--node=n1", "--node=n2", "tokenpeak", "report", f"{home}/my results"] == words[
        -8:
    ]


def test_no_other_variable_is_read() -> None:
    """Each variable that a target reads is one of those that are made text above it, or the Makefile's own."""
    read = {*re.findall(r"(?<!\$)\$\(([A-Z][A-Z0-9_]*)[:)]", MAKEFILE)}

    assert set() == read - OWN - {*NAMES["VALUES"], *NAMES["LISTS"]}
    assert set() == {*NAMES["ACTS"]} - {*NAMES["VALUES"], *NAMES["LISTS"]}
