"""A trial play over nodes of this machine whose node script does what a test has written for each command."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpeak.sweep.ansible.result import NodeResult
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.trial.play import TrialPlay

SCRIPT = """
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
request = sys.stdin.read()
with open(os.path.join(here, "called"), "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "request": request}) + "\\n")
command = next(word for word in sys.argv[1:] if os.path.exists(os.path.join(here, word + ".py")))
exec(open(os.path.join(here, command + ".py")).read())
"""
"""A node script that does what a test has written for the command."""
ANSWER = "print(); print(json.dumps({{'script': 'abc', **{}}}))"
LOCAL = {"ansible_connection": "local", "tokenpeak_python": sys.executable}


@dataclass
class Bench:
    """A play, and what its nodes do."""

    folder: Path
    play: TrialPlay

    def on(self, node: str, **scripts: str) -> None:
        """What the node's commands do from now on, and that none was called yet."""
        for path in (*self._state(node).glob("*.py"), *self._state(node).glob("called")):
            path.unlink()
        for command, script in scripts.items():
            (self._state(node) / f"{command}.py").write_text(script)

    def called(self, node: str) -> list[dict[str, object]]:
        """What the node was asked, in order."""
        path = self._state(node) / "called"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def carried_out(self, node: str, *steps: str, **options: object) -> NodeResult:
        """What came of these steps, each with a request that names it."""
        assignment = {}
        for step in steps:
            path = self.folder / f"{node}.{step}.json"
            path.write_text(json.dumps({"asked": step}))
            assignment[step] = str(path)
        return self.play.carry_out(node, assignment, **options)  # type: ignore[arg-type]

    def _state(self, node: str) -> Path:
        return self.folder / node


@contextlib.contextmanager
def playing(folder: Path, hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[Bench]:
    """A bench over these hosts, each with variables of its own."""
    variables = {name: {**LOCAL, "tokenpeak_state_dir": str(folder / name), **own} for name, own in hosts.items()}
    for name in variables:
        (folder / name).mkdir()
        (folder / name / "tokenpeak-node.pyz").write_text(SCRIPT)
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"hosts": variables}}))
    nodes = tuple(Node(name=name, variables=of_node) for name, of_node in variables.items())
    with TrialPlay(Inventory(name="x", hosts_path=path, nodes=nodes), tuple(variables)) as play:
        yield Bench(folder, play)
