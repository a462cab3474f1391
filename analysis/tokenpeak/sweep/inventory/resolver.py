"""Hosts and variables of an inventory, resolved by Ansible's own classes in one process of its own.

`python -m tokenpeak.sweep.inventory.resolver REQUEST` prints what it found; both are JSON.
Ansible's command line makes a process for each host, which takes 15 s for 200 hosts; this takes less than a second.
A process of its own, because Ansible reads its settings on import and keeps them for good.
"""

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any, TypedDict

from ansible import constants, context
from ansible.cli import CLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager


class ResolutionRequest(TypedDict):
    """What to resolve."""

    hosts_path: str
    playbooks: str
    """Folder whose group_vars and relative paths count, as they do when a playbook runs."""
    extravars: dict[str, Any]
    wanted: str | None
    """Pattern of the variables to render; None: none, only the hosts' names and groups."""
    nodes: list[str] | None
    """The hosts to render variables of, besides those of the group `always`; None: all."""
    always: str
    template: str | None
    """A file of Jinja to render with the variables of each of these hosts that is a node; None: none."""


class ResolvedHosts(TypedDict):
    """What was found."""

    groups: dict[str, list[str]]
    """Host → its groups, for every host."""
    variables: dict[str, dict[str, Any]]
    """Host → variable → rendered value."""
    failures: dict[str, dict[str, str]]
    """Host → variable that cannot be rendered → why; under the empty name what is wrong with all of its variables."""
    texts: dict[str, str]
    """Host → the template as rendered; without those for which it cannot be."""


def resolve(request: ResolutionRequest) -> ResolvedHosts:
    """The hosts of the inventory; raises AnsibleError when it cannot be parsed."""
    # As Ansible's command line hands on what it was given, and its defaults from the environment and ansible.cfg.
    context.CLIARGS = ImmutableDict(
        extra_vars=(json.dumps(request["extravars"]),),
        connection=constants.DEFAULT_TRANSPORT,
        remote_user=constants.DEFAULT_REMOTE_USER,
        private_key_file=constants.DEFAULT_PRIVATE_KEY_FILE,
    )
    init_plugin_loader()
    loader = DataLoader()
    loader.set_basedir(request["playbooks"])
    password_file = constants.DEFAULT_VAULT_PASSWORD_FILE
    loader.set_vault_secrets(
        CLI.setup_vault_secrets(
            loader,
            vault_ids=list(constants.DEFAULT_VAULT_IDENTITY_LIST),
            vault_password_files=[password_file] if password_file else [],
            auto_prompt=False,
        )
    )
    inventory = InventoryManager(loader=loader, sources=[request["hosts_path"]])
    hosts = inventory.get_hosts()
    answer = ResolvedHosts(
        groups={host.name: sorted(group.name for group in host.get_groups()) for host in hosts},
        variables={},
        failures={},
        texts={},
    )
    if request["wanted"] is None:
        return answer
    wanted = re.compile(request["wanted"])
    template = trust_as_template(Path(request["template"]).read_text()) if request["template"] else None
    manager = VariableManager(loader=loader, inventory=inventory)
    # Hands itself to the manager, which then offers the other hosts' variables under the name `hostvars`.
    HostVars(inventory=inventory, variable_manager=manager, loader=loader)
    connection = PlayContext()
    for host in hosts:
        is_wanted = request["nodes"] is None or host.name in request["nodes"]
        if not is_wanted and request["always"] not in answer["groups"][host.name]:
            continue
        try:
            variables = manager.get_vars(host=host)
        except AnsibleError as error:
            answer["failures"][host.name] = {"": str(error)}
            continue
        # The defaults of connections, where the inventory says nothing.
        connection.update_vars(variables)
        templar = Templar(loader=loader, variables=variables)
        rendered = answer["variables"].setdefault(host.name, {})
        for name in filter(wanted.search, variables):
            try:
                rendered[name] = templar.template(variables[name])
            except AnsibleError as error:
                answer["failures"].setdefault(host.name, {})[name] = str(error)
        if template is not None and is_wanted and request["always"] not in answer["groups"][host.name]:
            with contextlib.suppress(AnsibleError):
                answer["texts"][host.name] = str(templar.template(template))
    return answer


def main() -> None:
    """Answer the request; exit status 1 with Ansible's words when the inventory cannot be parsed."""
    request: ResolutionRequest = json.loads(sys.argv[1])
    try:
        answer = resolve(request)
    except AnsibleError as error:
        sys.exit(str(error))
    json.dump(answer, sys.stdout, default=str)


if __name__ == "__main__":
    main()
