"""A local user of a node serves a model whose words are a template, and waits for an operator to write an inventory.

`vllm serve "{{ lookup('pipe', …) }}"` needs no rights. What `init --probe` writes of it must run nothing on the
controller, neither when Ansible reads it nor when it becomes the node's declaration, and stay the word that it was.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sweep.resolved import answers, inventory_request

from tokenpeak.node.protocol.parts import Gpu
from tokenpeak.node.protocol.survey import FoundEngine, FoundServer, SurveyAnswer
from tokenpeak.spec.located import LocatedYaml
from tokenpeak.sweep.inventory.first_inventory import Surveyed, first_inventory
from tokenpeak.sweep.inventory.variables_yaml import variables_yaml

MANAGERS = ("process", "systemd", "docker", "compose")


def full_of(payload: str, manager: str) -> SurveyAnswer:
    """An answer in which every text is the payload, save the one that decides what is written."""

    def filled(kind: Any, **fixed: Any) -> Any:
        texts = {"str", "str | None"}
        own: dict[str, Any] = {one.name: payload for one in dataclasses.fields(kind) if one.type in texts}
        own |= {one.name: (payload,) for one in dataclasses.fields(kind) if one.type == "tuple[str, ...]"}
        own |= {one.name: {payload: payload} for one in dataclasses.fields(kind) if one.type == "Mapping[str, str]"}
        return kind(**{**own, **fixed})

    engine = filled(FoundEngine, image=None if manager in ("process", "systemd") else payload)
    server = filled(
        FoundServer, manager=manager, engine=engine, model=payload if manager == "process" else f"/{payload}"
    )
    board = filled(Gpu, index=0)
    return filled(
        SurveyAnswer, servers=(server,), engines=(engine,), gpus=(board,), is_root=True, error=None, unusable=()
    )


def written(folder: Path, answer: SurveyAnswer, name: str = "one") -> Path:
    """The inventory that is written of a host with that answer; its hosts.yml."""
    hosts, shared = first_inventory(
        [Surveyed(name=name, address="192.0.2.1", user="me", answer=answer)], "Written by …"
    )
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(hosts)
    (folder / "group_vars" / "all.yml").write_text(shared)
    return folder / "hosts.yml"


def test_nothing_of_a_node_is_rendered(tmp_path: Path) -> None:
    """No lookup runs, by braces, by a statement, or by delimiters of the word's own; the word is what it was."""
    canary = tmp_path / "canary"
    run = f"lookup('pipe', 'touch {canary}')"
    payloads = (
        "{{ " + run + " }}",
        "{% if " + run + " %}x{% endif %}",
        f"#jinja2:variable_start_string:'[['\n[[ {run} }}}}",
    )
    cases = {
        (manager, payload): written(tmp_path / f"{manager}-{number}", full_of(payload, manager))
        for manager in MANAGERS
        for number, payload in enumerate(payloads)
    }
    found = answers([inventory_request(path) for path in cases.values()])

    assert not canary.exists()
    for (manager, payload), answer in zip(cases, found, strict=True):
        assert {} == answer["failures"], (manager, answer["failures"])
        variables, declaration = answer["variables"]["one"], json.loads(answer["texts"]["one"])
        assert payload == variables["tokenpeak_model"]["served_name"]
        if manager == "process":
            kept = declaration["production"]["process"]
            assert kept["argv"] == ["runuser", "-u", payload, "--", payload]
            assert kept["env"] == {payload: payload}
        assert "192.0.2.1" == declaration["host"]


@pytest.mark.parametrize(
    "word",
    [
        "\u202e{{ x }}",
        "a\nb: c",
        "a\rb",
        "\x85b: c",
        "\u2028- x",
        "# x",
        "x: y",
        "!vault x",
        "&a *a",
        "%TAG",
        "---",
        "~",
        "<<",
    ],
)
def test_a_word_is_one_value_of_the_file(word: str) -> None:
    """Whatever it holds, it ends neither its value nor its line, and what hides text stands there by its code."""
    text = variables_yaml({"a": word, "b": [word, 1], word: 2})

    class Loader(yaml.SafeLoader):
        """Takes the tag as Ansible does."""

    Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    assert {"a": word, "b": [word, 1], word: 2} == yaml.load(text, Loader)
    assert text.replace("\n", "").isprintable()


def test_comments_and_the_names_of_hosts_end_no_line(tmp_path: Path) -> None:
    """A doubt that repeats a node's words stays a comment; the file is one that our own reader takes, too."""
    answer = dataclasses.replace(full_of("x", "systemd"), front="a\x85tokenpeak_port: 1\n\x1b]0;b", url="c\u2028d: 1")
    path = written(tmp_path / "inventory", answer, name="odd: name")
    shared = (path.parent / "group_vars" / "all.yml").read_text()

    assert 8099 == LocatedYaml(path.parent / "group_vars" / "all.yml").values()["tokenpeak_port"]
    assert ["odd: name"] == list(LocatedYaml(path).values()["all"]["hosts"])
    assert shared.replace("\n", "").isprintable()
