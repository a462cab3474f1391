"""A hostile node answers a module with `ansible_facts`, to set the variables of the play that comes after it.

As variables they stand above the inventory: `inventory_hostname` would choose which file of the controller's is sent to
the node as its secret. So no fact becomes a variable, and no file that is read here is named by what a host has.
"""

import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak import paths
from tokenpeak.sweep.ansible.runner import _environment
from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.sweep.inventory.variables import ControllerVariables
from tokenpeak.sweep.secret import write_node_secrets

READ_HERE = ("src", "secret_file", "script", "request", "job")
"""Arguments of our modules that name a file of the controller's."""
BY_HOST = "tokenpeak_secret_files[inventory_hostname] if tokenpeak_secret_files is defined else omit"
"""The one choice by a host's name, of the files that the controller gave."""
HANDED_OUT = r"next\.trial\.(launch|job|finish|restore)"
"""What a task has from the controller, over its own socket."""
NAME = r"\w[\w.-]*"
"""Of a file of the role itself."""
TASKS = sorted(paths.PLAYBOOKS.rglob("*.yml"))


def test_no_fact_becomes_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when the playbooks are played by hand, nor here, whatever the caller's environment says."""
    settings = configparser.ConfigParser()
    settings.read(paths.PLAYBOOKS / "ansible.cfg")
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "True")

    assert "False" == settings["defaults"]["inject_facts_as_vars"]
    assert "False" == _environment({"ANSIBLE_INJECT_FACT_VARS": "True"})["ANSIBLE_INJECT_FACT_VARS"]


def test_a_node_s_name_is_no_path(tmp_path: Path) -> None:
    """Each node's secret has a file of its own in the folder, and the controller says which."""
    written = write_node_secrets(tmp_path, [Node(name=name, variables={}) for name in ("one", "two", "../three")])

    assert ["one", "two", "../three"] == list(written)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(written.values())


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.relative_to(paths.PLAYBOOKS).as_posix())
def test_files_that_are_read_here_are_the_controller_s_choice(path: Path) -> None:
    """What a task looks up, copies or sends is named by a constant, or by a variable that the controller gives."""
    unnamed = [words for words in _read_here(yaml.safe_load(path.read_text())) if not _is_chosen_here(words)]

    assert [] == unnamed, f"{path} reads a file of the controller's that a host's variables name"


@pytest.mark.parametrize(
    "words", ["{{ tokenpeak_state_dir }}/x", "{{ inventory_hostname }}", "{{ '/a/' ~ x }}", "../x"]
)
def test_what_is_no_choice_of_ours(words: str) -> None:
    """So the search above does find such ones."""
    assert not _is_chosen_here(words)


def _read_here(value: Any, items: Any = None) -> Iterator[str]:
    """What names a file of the controller's in tasks; an `item` is put in where a loop names its items itself."""
    if isinstance(value, list):
        for each in value:
            yield from _read_here(each, items)
    elif isinstance(value, dict):
        items = value.get("loop", items)
        for key, each in value.items():
            if key in READ_HERE and isinstance(each, str):
                is_listed = each == "{{ item }}" and isinstance(items, list)
                yield from map(str, items) if is_listed else (each,)
            else:
                yield from _read_here(each, items)
    elif isinstance(value, str):
        for named in re.findall(r"(?:lookup|query|q)\(\s*'[\w.]+',\s*([^,)]+)", value):
            yield f"{{{{ {named} }}}}"


def _is_chosen_here(words: str) -> bool:
    template = re.fullmatch(r"{{ (.*) }}", words)
    if template is None:
        return re.fullmatch(NAME, words) is not None
    if template[1].startswith("{'"):
        return True  # it is the request itself
    is_named = template[1] in (*ControllerVariables.model_fields, BY_HOST)
    return is_named or re.fullmatch(f"'{NAME}'|{HANDED_OUT}", template[1]) is not None
