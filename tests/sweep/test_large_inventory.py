"""200 nodes: what is asked of one is its matter alone, and Ansible resolves all of them in one process."""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tokenpeak import paths

pytestmark = pytest.mark.integration

HOSTS = 200
CPU_LIMIT_S = 20
"""CPU time, which a slow machine takes three times of: 4 to 10. With a process for each host it is 25 to 60."""
ANSIBLE_RUNNER = {"ansible_runner", "pexpect", "ptyprocess", "yaml", "_yaml"}
"""It and what it imports itself."""
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose inventory `big` refuses connections at once; two variables of its last node cannot be rendered."""
    home = tmp_path_factory.mktemp("home")
    for folder in ("playbooks", "analysis"):
        (home / folder).symlink_to(paths.ROOT / folder)
    big = home / "inventory" / "big"
    shutil.copytree(paths.INVENTORIES / "h100", big)
    hosts = {f"gpu-{number:04d}": {"ansible_host": "127.0.0.1", "ansible_port": 9} for number in range(HOSTS)}
    (big / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    (big / "host_vars").mkdir()
    (big / "host_vars" / f"gpu-{HOSTS - 1:04d}.yml").write_text(
        "ansible_host: '{{ no_address }}'\ntokenpeak_tdp_w: '{{ no_power }}'\n"
    )
    return home


def environment(home: Path) -> dict[str, str]:
    """What makes commands work in this home."""
    return {**os.environ, "TOKENPEAK_HOME": str(home), "TOKENPEAK_STATE": str(home / "state")}


def cpu_of_children_s() -> float:
    """The CPU time of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ended(home: Path, argv: Sequence[str]) -> tuple["subprocess.CompletedProcess[str]", float]:
    """How the command ended in this home, and the CPU time that it took."""
    before = cpu_of_children_s()
    done = subprocess.run(argv, env=environment(home), capture_output=True, text=True, check=False)
    return done, cpu_of_children_s() - before


def tokenpeak(home: Path, *arguments: str) -> tuple["subprocess.CompletedProcess[str]", float]:
    """What a user who types the command gets, and the CPU time that it took."""
    return ended(home, [TOKENPEAK, *arguments])


def test_another_node_s_variables_do_not_stop_a_command_for_one(home: Path) -> None:
    """The node is reached for (and refuses here), soon, although another's variables cannot be rendered.

    Ansible says why ssh ended, or that it had ended when data were to be written to it: whichever comes first.
    Before Ansible starts, click and ansible-runner alone are imported: nothing for records or tables.
    """
    code = (
        "import atexit, importlib.metadata, sys\n"
        "known = importlib.metadata.packages_distributions()\n"
        "atexit.register(lambda: print(*sorted({name.partition('.')[0] for name in sys.modules} & {*known})))\n"
        "from tokenpeak.cli import main\n"
        "main()"
    )
    argv = [sys.executable, "-c", code, "restore", "--inventory", "big", "--node", "gpu-0007"]
    done, cpu_s = ended(home, argv)
    imported = {*done.stdout.splitlines()[-1].split()}

    assert 1 == done.returncode
    assert "gpu-0007" in done.stdout, done.stderr
    assert re.search(r"Connection refused|could not be sent to remote host '127\.0\.0\.1'", done.stdout), done.stdout
    assert "gpu-0199" not in done.stdout + done.stderr
    assert cpu_s < CPU_LIMIT_S
    assert "ansible_runner" in imported
    assert {"tokenpeak", "click", *ANSIBLE_RUNNER} >= imported


def test_only_a_node_of_that_very_name_is_reached(home: Path) -> None:
    """Ansible takes a name for a pattern; a group's name and a pattern reach nobody, a node's name that node."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        few = home / "inventory" / "few"
        shutil.copytree(paths.INVENTORIES / "h100", few)
        reached = {"ansible_host": "127.0.0.1", "ansible_port": listening.getsockname()[1]}
        hosts = {"g-1": reached, "g-2": {"ansible_host": "127.0.0.1", "ansible_port": 9}}
        (few / "hosts.yml").write_text(
            json.dumps({"all": {"hosts": hosts, "children": {"ours": {"hosts": {"g-1": {}}}}}})
        )
        listening.settimeout(0.1)

        for name in ("all", "ours", "g*"):
            tokenpeak(home, "restore", "--inventory", "few", "--node", name)
            with pytest.raises(TimeoutError):
                listening.accept()
        hang_up = threading.Thread(target=lambda: _hang_up(listening))
        hang_up.start()
        done, _ = tokenpeak(home, "restore", "--inventory", "few", "--node", "g-1")
        hang_up.join(10)

    assert "g-1: whether production is back is not known" in done.stdout
    assert "refused" not in done.stdout


def _hang_up(listening: socket.socket) -> None:
    listening.settimeout(20)
    listening.accept()[0].close()
