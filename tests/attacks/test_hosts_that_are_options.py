"""An inventory that somebody else wrote names a host `-oProxyCommand=…`, which ssh would run here.

Ansible hands hosts to ssh as they are. So such an inventory is refused where it is read. An agent that is forwarded
logs in elsewhere for whoever is root there: none is.
"""

import configparser
from pathlib import Path
from typing import Any

import pytest

from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.sweep.inventory.nodes import inventory_of


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


def test_ansible_lends_no_agent() -> None:
    """Ansible's own ssh has the same options."""
    parser = configparser.RawConfigParser()
    parser.read(paths.PLAYBOOKS / "ansible.cfg")

    assert {"-a", "-x"} <= {*parser["ssh_connection"]["ssh_args"].split()}
