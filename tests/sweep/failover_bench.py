"""Simulated nodes whose folders belong to no controller, so that controllers of several state folders share them.

What happened is read from raw files, from processes and by HTTP requests; nothing of the product is asked.
"""

import collections
import dataclasses
import hashlib
import json
import os
import signal
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from driven_home import MODEL, SPEC, Home

from tokenpeak.node.machine import clock

LEASE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Nodes n0, n1, … of one inventory, and a first controller."""

    home: Home
    inventory: str
    folder: Path
    addresses: tuple[str, ...]

    def another(self, name: str) -> Home:
        """A controller with a state folder of its own, as on another machine that shares the working folder."""
        return dataclasses.replace(self.home, state=self.folder / name)

    def node(self, number: int) -> Path:
        """The node's state folder."""
        return self.folder / f"n{number}"

    def are_borrowed(self) -> bool:
        """Whether a trial has every node and its engine was begun."""
        return all((self.node(n) / "engine.json").exists() for n in range(len(self.addresses)))

    def answers(self, number: int) -> str | None:
        """The model that the node's production serves, from a completion; None where nothing answers."""
        body = json.dumps({"model": MODEL, "prompt": "The", "max_tokens": 1}).encode()
        url = f"http://{self.addresses[number]}:18000/v1/completions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return str(json.load(response)["model"])
        except OSError:
            return None

    def all_answer_within(self, seconds: float) -> bool:
        """Whether production of every node answers in time."""
        numbers = range(len(self.addresses))
        return clock.wait_until(lambda: all(self.answers(n) == MODEL for n in numbers), seconds, poll_s=0.3)

    def production_pid(self, number: int) -> int:
        """The process that is production's leader."""
        return int(json.loads((self.node(number) / "production.json").read_text())["pid"])

    def production_began_s(self, number: int) -> float:
        """When that process began, by the kernel, in seconds since the boot."""
        fields = Path("/proc", str(self.production_pid(number)), "stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def now_s() -> float:
    """Seconds since the boot, as the kernel counts the beginnings of processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def make_bench(home: Home, folder: Path, name: str, count: int, spec: dict[str, Any], **variables: Any) -> Bench:
    """An inventory of so many nodes and a sweep, both of this name; `variables` replace those of the inventory."""
    _, network, *rest = home.address.split(".")
    addresses = tuple(".".join(["127", str((int(network) + 20 + n) % 250 + 1), *rest]) for n in range(count))
    hosts = {
        f"n{n}": {
            "tokenpeak_host": address,
            "tokenpeak_simulated_gpu": "NVIDIA L4",
            "tokenpeak_state_dir": str(folder / f"n{n}"),
        }
        for n, address in enumerate(addresses)
    }
    place = home.root / "inventory" / name
    (place / "group_vars").mkdir(parents=True)
    (place / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    shared = yaml.safe_load((home.root / "inventory" / "lone" / "group_vars" / "all.yml").read_text())
    (place / "group_vars" / "all.yml").write_text(yaml.safe_dump({**shared, **variables}))
    (home.root / "analysis" / "sweeps" / f"{name}.yml").write_text(yaml.safe_dump(spec))
    first = dataclasses.replace(home, state=folder / "first")
    return Bench(home=first, inventory=name, folder=folder, addresses=addresses)


def end_production(bench: Bench) -> None:
    """End what the inventory started."""
    for number in range(len(bench.addresses)):
        try:
            os.killpg(bench.production_pid(number), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue


def longer(configs: list[int], **changes: Any) -> dict[str, Any]:
    """A sweep of these values of max_num_seqs."""
    return {**SPEC, "axes": {"max_num_seqs": configs}, **changes}


def made(archive: Path) -> dict[str, int]:
    """Config → in how many trial files of status ok it stands."""
    found = [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("[!.]*.json"))]
    return dict(collections.Counter(trial["config"]["name"] for trial in found if trial["status"] == "ok"))


def digests(archive: Path) -> dict[str, str]:
    """Path → SHA-256 of every file of the archive."""
    return {
        path.relative_to(archive).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(archive.rglob("*"))
        if path.is_file()
    }
