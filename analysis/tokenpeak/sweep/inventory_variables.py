"""Variables of inventories: which there are, of which type, and what production's managers take."""

from collections.abc import Mapping
from functools import cache

import yaml

from tokenpeak import paths

CONTROLLER: Mapping[str, str] = {
    "tokenpeak_become": "bool",
    "tokenpeak_default_sweep": "str",
    "tokenpeak_facts": "dict",
    "tokenpeak_load_home": "str",
    "tokenpeak_load_python": "str",
    "tokenpeak_produce": "bool",
    "tokenpeak_setup_roles": "list",
    "tokenpeak_tdp_w": "float",
}
"""Variable that the controller or a playbook reads and no role declares → its type as in argument_specs."""

ANSIBLE = (
    "ansible_become",
    "ansible_become_method",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_connection",
    "ansible_host",
    "ansible_password",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_python_interpreter",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_private_key_file",
    "ansible_user",
)
"""Ansible's own that an inventory of nodes usually has; there are more."""

_EVERY_MANAGER = ("manager", "url", "api_key_file", "ca_file", "listens_as", "answers_with", "answer_command")
MANAGER_KEYS: Mapping[str, tuple[str, ...]] = {
    "systemd": ("unit", "user"),
    "docker": ("unit", "stop_grace_s"),
    "podman": ("unit", "stop_grace_s", "user"),
    "compose": ("file", "unit", "project"),
    "kubernetes": ("unit", "namespace", "context", "kubeconfig"),
    "supervisord": ("unit", "config"),
    "command": ("start", "stop", "check", "process"),
    "none": (),
}
"""Manager of production → the keys of tokenpeak_production that are its own."""


BALANCER_KEYS: Mapping[str, tuple[str, ...]] = {
    "haproxy": ("socket", "servers"),
    "nginx": ("file", "server", "reach", "reload"),
    "kubernetes": ("service", "label"),
}
"""Built-in balancer of tokenpeak_drain → its keys."""
DRAIN_KEYS = (*BALANCER_KEYS, "before", "after", "wait", "least_up")


def keys_of(manager: str) -> tuple[str, ...]:
    """Every key of tokenpeak_production that this manager takes."""
    return (*_EVERY_MANAGER, *MANAGER_KEYS[manager])


@cache
def declared_variables() -> Mapping[str, str]:
    """Variable → type, of all that roles and controller read from an inventory."""
    found = dict(CONTROLLER)
    for path in sorted(paths.PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in entry["options"].items():
                if name.startswith("tokenpeak_"):
                    found[name] = option["type"]
    return found
