"""200 nodes: what is asked of one is its matter alone, and Ansible resolves all of them in one process."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpeak import paths

HOSTS = 200
CPU_LIMIT_S = 10
"""CPU time, not time on the clock: a busy machine breaks no test. With a process for each host it is over 25."""
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


def tokenpeak(home: Path, *arguments: str) -> tuple["subprocess.CompletedProcess[str]", float]:
    """What a user who types the command gets, and the CPU time that it took."""
    environment = {**os.environ, "TOKENPEAK_HOME": str(home), "TOKENPEAK_STATE": str(home / "state")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([TOKENPEAK, *arguments], env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", ["restore", "status"])
def test_another_node_s_variables_do_not_stop_a_command_for_one(home: Path, command: str) -> None:
    """The node is reached for (and refuses here), soon, although another's variables cannot be rendered."""
    done, cpu_s = tokenpeak(home, command, "--inventory", "big", "--node", "gpu-0007")

    assert 1 == done.returncode
    assert "gpu-0007" in done.stdout, done.stderr
    assert "Connection refused" in done.stdout
    assert "gpu-0199" not in done.stdout + done.stderr
    assert cpu_s < CPU_LIMIT_S


def test_plan_of_one_node_asks_for_its_variables_alone(home: Path) -> None:
    """The same holds for commands that need variables."""
    done, cpu_s = tokenpeak(home, "plan", "--inventory", "big", "--node", "gpu-0007")

    assert 0 == done.returncode, done.stderr
    assert cpu_s < CPU_LIMIT_S


def test_plan_of_all_names_the_node_and_the_variable(home: Path) -> None:
    """What cannot be rendered of a node that is asked for ends in one sentence."""
    done, cpu_s = tokenpeak(home, "plan", "--inventory", "big")

    assert 1 == done.returncode
    assert "Traceback" not in done.stderr
    assert "of node gpu-0199 in " in done.stderr
    assert "is undefined" in done.stderr
    assert any(name in done.stderr for name in ("Variable ansible_host", "Variable tokenpeak_tdp_w"))
    assert cpu_s < CPU_LIMIT_S


def test_plan_of_200_nodes(home: Path) -> None:
    """With all of them in order, all are planned for."""
    (home / "inventory" / "big" / "host_vars" / f"gpu-{HOSTS - 1:04d}.yml").unlink()
    done, cpu_s = tokenpeak(home, "plan", "--inventory", "big", "--format", "json")

    assert 0 == done.returncode, done.stderr
    assert HOSTS == len({node for entry in json.loads(done.stdout)["feasible"] for node in entry["nodes"]})
    assert cpu_s < CPU_LIMIT_S


def test_node_that_is_not_in_the_inventory_is_answered_with_the_nearest(home: Path) -> None:
    """Nothing is done for a name that is a group's, a pattern, or a typing error."""
    for name in ("gpu-000", "all", "gpu-*"):
        done, _ = tokenpeak(home, "restore", "--inventory", "big", "--node", name)

        assert 1 == done.returncode
        assert f"Inventory big has no node '{name}'" in done.stderr
