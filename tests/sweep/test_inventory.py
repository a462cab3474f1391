"""Inventories as Ansible resolves them, and the boards that one chooses."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from resolved import answers, inventory_request

from commands import typed
from node_models import named
from tokenpeak import paths
from tokenpeak.cli.probe import probe
from tokenpeak.errors import InventoryError
from tokenpeak.records import NodeFacts, Production
from tokenpeak.sweep.inventory.nodes import (
    Inventory,
    Node,
    Resolution,
    as_extravars,
    hosts_path,
    inventory_names,
    inventory_of,
    nodes_by_name,
)
from tokenpeak.sweep.inventory.schema import derived_files
from tokenpeak.sweep.probe import Probe, ReadyNode, declared_facts, declared_model, engine_builds_of
from tokenpeak.sweep.trial.load_hosts import load_hosts


def write_inventory(folder: Path, hosts: str, group_vars: str) -> Path:
    """An inventory called `mine` below `folder`."""
    target = folder / "mine"
    (target / "group_vars").mkdir(parents=True)
    (target / "hosts.yml").write_text(hosts)
    (target / "group_vars" / "all.yml").write_text(group_vars)
    return folder


ENVIRONMENTS = (
    "{HF_TOKEN: abcd1234}",
    "{VLLM_X: hf_abcdefghijklmnopqrstuv}",
    "{https_proxy: 'http://bob:pw12@proxy:3128'}",
)
"""Each with a secret."""
CASES = {
    "merged": (
        "all:\n  hosts:\n    one: {size: 7b}\n    two: {size: 7b}\n",
        "tokenpeak_model: {name: 'acme/model-{{ size }}'}\ntokenpeak_engine_version: 0.32.0\n",
    ),
    "load": (
        "all: {hosts: {gpu: }, children: {load_hosts: {hosts: {b: {ansible_connection: local}, "
        "a: {ansible_host: 10.0.0.7, ansible_user: me, tokenpeak_load_python: /there/python}}}}}\n",
        "ansible_become: true\n",
    ),
    **{env: ("all: {hosts: {one: }}\n", f"tokenpeak_engine_env: {env}\n") for env in ENVIRONMENTS},
    "undefined": ("all: {hosts: {one: }}\n", "tokenpeak_model: {name: '{{ nowhere }}'}\n"),
    "half": ("all: {hosts: {one: , two: {tokenpeak_model: '{{ nowhere }}'}}}\n", "tokenpeak_tdp_w: 300\n"),
}
"""Inventories by what they are about: hosts.yml and group_vars/all.yml."""
Read = Callable[..., Inventory]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """`read_inventory` of a case or a shipped inventory, all of which were resolved by one start of Ansible."""
    place = tmp_path_factory.mktemp("cases")
    asked: dict[tuple[str, tuple[str, ...]], Path] = {
        (name, ()): hosts_path("mine", write_inventory(place / str(number), *files))
        for number, (name, files) in enumerate(CASES.items())
    }
    asked |= {("half", (node,)): asked["half", ()] for node in ("one", "two")}
    asked |= {(name, ()): hosts_path(name) for name in inventory_names()}
    found = answers([inventory_request(path, nodes) for (_, nodes), path in asked.items()])
    answered = dict(zip(asked, found, strict=True))
    return lambda name, nodes=(): inventory_of(name, asked[name, nodes], answered[name, nodes], nodes)


@pytest.mark.integration
def test_variables_are_merged_and_rendered(read: Read) -> None:
    """A host has its group's variables with Jinja rendered, as a playbook would see them."""
    inventory = read("merged")

    assert named("acme/model-7b") == declared_model(inventory.node("one"))
    assert ("one", "two") == tuple(node.name for node in inventory.nodes)
    assert [("engine", "0.32.0")] == [(build.name, build.version) for build in engine_builds_of(inventory.node("one"))]


def test_load_hosts_are_no_nodes(read: Read) -> None:
    """Hosts of the group load_hosts offer the load; nothing is ever launched on them."""
    inventory = read("load")
    remote, local = load_hosts(inventory.limited_to(("gpu",)))

    assert (["gpu"], ["a", "b"]) == ([node.name for node in inventory.nodes], [remote.name, local.name])
    assert "10.0.0.7" == remote.argv[-2]
    assert "/there/python -P -m tokenpeak.loadgen.workers.remote" in remote.argv[-1]
    assert f"{sys.executable} -P -m tokenpeak.loadgen.workers.remote" in local.argv[-1]


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_secret_in_the_engine_s_environment_is_refused(env: str, read: Read) -> None:
    """The complaint names the variable and where a secret belongs, and does not repeat it."""
    with pytest.raises(
        InventoryError, match=r"Node one .*tokenpeak_engine_env\..*tokenpeak_engine_env_file"
    ) as refused:
        read(env)
    assert not any(secret in str(refused.value) for secret in ("abcd1234", "hf_abc", "pw12"))


def test_variable_that_cannot_be_rendered_names_the_node_and_the_variable(read: Read) -> None:
    """An undefined name is said before anything is touched."""
    with pytest.raises(InventoryError, match=r"node one .*nowhere.* is undefined"):
        read("undefined")


def test_only_the_nodes_that_are_asked_for_are_resolved(read: Read, tmp_path: Path) -> None:
    """What another node declares wrongly is said when that node is asked for."""
    folder = write_inventory(tmp_path, *CASES["half"])

    assert [300] == [node.tdp_w for node in read("half", ("one",)).nodes]
    by_name = nodes_by_name("mine", Resolution(hosts_path("mine", folder)))
    assert ["one", "two"] == [node.name for node in by_name.nodes]
    with pytest.raises(InventoryError, match=r"Variable tokenpeak_model of node two in .*'nowhere' is undefined"):
        read("half", ("two",))


def as_ansible_says(inventory: Path) -> dict[str, dict[str, Any]]:
    """The variables that Ansible's own command line renders, with a process for each host."""
    names = "query('ansible.builtin.varnames', '^(tokenpeak|ansible_(host|user|port|connection|private_key_file))')"
    message = json.dumps({"msg": f"{{{{ dict({names} | zip(query('ansible.builtin.vars', *{names}))) }}}}"})
    command = [str(Path(sys.executable).with_name("ansible")), "all", f"--inventory={inventory}"]
    command += [f"--extra-vars={json.dumps(as_extravars({}))}", "--playbook-dir", str(paths.PLAYBOOKS)]
    done = subprocess.run(
        [*command, "--module-name=ansible.builtin.debug", f"--args={message}"],
        env={**os.environ, "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    blocks = re.finditer(r"^(\S+) \| SUCCESS => ", done.stdout, re.MULTILINE)
    return {block[1]: json.JSONDecoder().raw_decode(done.stdout, block.end())[0]["msg"] for block in blocks}


@pytest.mark.integration
def test_variables_are_those_that_ansible_s_command_line_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups in groups, files of hosts and groups, lookups, Ansible's own names, and what a vault holds."""
    (tmp_path / "password").write_text("open sesame\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("ANSIBLE_PRIVATE_KEY_FILE", "/keys/id")
    vault = [str(Path(sys.executable).with_name("ansible-vault")), "encrypt_string", "sealed", "--name"]
    sealed = subprocess.run([*vault, "tokenpeak_sealed"], capture_output=True, text=True, check=True).stdout
    folder = write_inventory(
        tmp_path,
        "all:\n  hosts: {one: }\n  children:\n    racks:\n      vars: {tokenpeak_rack: any, size: 7b}\n"
        "      children:\n        left: {hosts: {'gpu[01:03]': {ansible_user: me}}, vars: {tokenpeak_rack: left}}\n",
        "size: 70b\ntokenpeak_model: {name: 'acme/{{ size }}'}\ntokenpeak_day: 2026-11-22\n"
        "tokenpeak_state_dir: /var/lib/tokenpeak\n"
        "tokenpeak_python: '{{ ansible_playbook_python }}'\n"
        "tokenpeak_dir: '{{ tokenpeak_local_state }}/{{ inventory_hostname }}/{{ group_names | join(\"-\") }}'\n"
        "tokenpeak_user: \"{{ lookup('ansible.builtin.pipe', 'id -u') | int }}\"\n"
        "tokenpeak_others: \"{{ groups.all | map('extract', hostvars, 'size') | list }}\"\n" + sealed,
    )
    (folder / "mine" / "host_vars").mkdir()
    (folder / "mine" / "host_vars" / "gpu02.yml").write_text("size: 8b\nansible_host: 10.0.0.2\n")
    path = hosts_path("mine", folder)
    found = Resolution(path, wanted="^(tokenpeak|ansible_(host|user|port|connection|private_key_file))").answer()

    said = as_ansible_says(path)
    for host, variables in said.items():
        # Ansible's own default for a host without an address.
        if variables["ansible_host"] == host:
            del variables["ansible_host"]

    assert {} == found["failures"]
    assert said == found["variables"]
    assert "sealed" == found["variables"]["one"]["tokenpeak_sealed"]


@pytest.mark.parametrize("name", inventory_names())
def test_shipped_inventory_can_be_read(name: str, read: Read) -> None:
    """Every inventory that the project ships names a sweep that exists, and its declared facts make sense."""
    inventory = read(name)

    assert (paths.SWEEPS / f"{inventory.default_sweep}.yml").is_file()
    assert all(declared_facts(node) is None or declared_facts(node) for node in inventory.nodes)


def test_files_follow_from_the_variables() -> None:
    """Argument specs, the template of node.json and the schema say what the one declaration says."""
    for path, text in derived_files().items():
        assert text == path.read_text(), f"python -m tokenpeak.sweep.inventory.schema writes {path} anew"


BOARDS = [{"index": index, "name": name} for index, name in enumerate(("NVIDIA T4", "NVIDIA L4", "NVIDIA L4"))]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({}, "3x NVIDIA L4 + NVIDIA T4"),
        ({"tokenpeak_gpus": [1, 2]}, "2x NVIDIA L4"),
        ({"tokenpeak_engine_env": {"CUDA_VISIBLE_DEVICES": "0"}}, "1x NVIDIA T4"),
        ({"tokenpeak_gpus": [2], "tokenpeak_engine_env": {"CUDA_VISIBLE_DEVICES": "0"}}, "1x NVIDIA L4"),
    ],
)
def test_declared_facts_are_of_the_chosen_boards(given: dict[str, object], label: str) -> None:
    """A plan without the node counts the boards that its trials will use."""
    facts = declared_facts(Node(name="n", variables={"tokenpeak_facts": {"gpus": BOARDS}, **given}))

    assert facts is not None
    assert label == facts.hardware


def test_a_node_without_production_and_power_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared absence of production is no production that is down; what cannot be measured has its consequence."""
    production = Production(manager="none", running=False)
    facts = NodeFacts(node="one", source="probed", production=production)
    probed = Probe(answered={"one": ReadyNode(facts=facts, declaration={})}, unreachable={}, failed={})
    monkeypatch.setattr(
        "tokenpeak.cli.probe.read_inventory",
        lambda *_, **__: Inventory(name="lab", hosts_path=Path("hosts.yml"), nodes=(Node(name="one", variables={}),)),
    )
    monkeypatch.setattr("tokenpeak.cli.probe.probe_nodes", lambda *_, **__: probed)
    said = CliRunner().invoke(probe, [], catch_exceptions=False).stdout

    assert "none (declared)" in said
    assert "No power reading on one: no energy figures" in said


@pytest.mark.integration
def test_a_probe_of_one_node_keeps_what_is_known_of_the_others(tmp_path: Path) -> None:
    """Nodes are probed one by one: each has its facts afterwards."""
    for node in ("sim-a100", "sim-h100"):
        assert 0 == typed("probe", "--inventory", "sim", "--node", node, TOKENPEAK_STATE=str(tmp_path)).returncode
    kept = json.loads((tmp_path / "probes" / "sim.json").read_text())

    assert {"sim-a100", "sim-h100"} == {facts["node"] for facts in kept}
