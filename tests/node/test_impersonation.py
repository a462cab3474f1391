"""Another user of the node takes the port of production, or of the engine: it gets no key, and no answer of it counts.

The stranger is a real process of a real second user.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.machine import clock

SOURCE = Path(__file__).with_name("stranger.py").read_text()
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed"),
]


class Stranger:
    """A process of `nobody` that answers in another's place."""

    def __init__(self, said: Path, port: int, *options: str) -> None:
        self._said = said
        with said.open("wb") as out:
            argv = [*NOBODY, "/usr/bin/python3", "-c", SOURCE, "prod", "127.0.0.1", str(port), *options]
            self.process = subprocess.Popen(argv, stdout=out, cwd="/")
        assert clock.wait_until(lambda: "waits" in said.read_text(), 60)

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self._said.read_text()

    def has_the_port(self, within_s: float = 10) -> bool:
        """Whether it came to listen."""
        return clock.wait_until(lambda: "bound" in self.said, within_s)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Callable[..., Stranger]]:
    made: list[Stranger] = []

    def start(port: int, *options: str) -> Stranger:
        made.append(Stranger(tmp_path / f"stranger-{len(made)}", port, *options))
        return made[-1]

    yield start
    for each in made:
        each.end()


def production_with_a_key(node: Node, tmp_path: Path, *options: str) -> int:
    """Production that asks for an API key; its port."""
    declared = node.production(*options)
    key = tmp_path / "production.key"
    key.write_text("the-key-of-production\n")
    key.chmod(0o600)
    declared["api_key_file"] = str(key)
    declared["process"]["env"] = {"VLLM_API_KEY": "the-key-of-production"}
    node.declare(production=declared)
    return int(declared["url"].rsplit(":", 1)[1])


@pytest.mark.e2e
def test_port_of_production_taken_during_a_trial(node: Node, tmp_path: Path, stranger: Callable[..., Stranger]) -> None:
    """While production comes back, whoever else has its port hears no key, and nothing is recorded as restored."""
    port = production_with_a_key(node, tmp_path, "--start-s", "3")
    node.run("produce")
    node.run("launch", node.launch_request())
    taker = stranger(port, "--discreet")
    assert taker.has_the_port()

    finished = node.run("finish", node.finish_request(production_ready_s=10))
    recorded = node.read("record.json")
    taker.end()
    given_back = node.run("restore")

    assert (False, "waits\nbound\n") == (finished["restoration"]["restored"], taker.said), finished["restoration"]
    assert f"{taker.process.pid} python3 of user 65534" in finished["restoration"]["message"]
    assert recorded is not None
    assert given_back["restoration"]["restored"], given_back["restoration"]


def test_port_of_production_taken_before_the_first_look(
    node: Node, tmp_path: Path, stranger: Callable[..., Stranger]
) -> None:
    """Production that is still loading has no port yet: who took it is asked nothing, by no command."""
    port = production_with_a_key(node, tmp_path, "--hang")
    producing = node.start("produce")
    assert clock.wait_until(lambda: node.read("production.json") is not None, 60)
    producing.kill()
    producing.communicate()
    taker = stranger(port)
    assert taker.has_the_port()

    status = node.run("status")
    probed = node.run("probe")
    launched = node.run("launch", node.launch_request())
    node.run("restore")

    assert "heard" not in taker.said
    assert (True, None) == (status["production"]["running"], status["production"]["model"])
    assert any(f"{taker.process.pid} python3 of user 65534" in problem for problem in probed["problems"])
    assert "production_unwell" == launched["error"]["code"]
    assert f"{taker.process.pid} python3 of user 65534" in launched["error"]["text"]


def test_port_of_the_engine_taken_while_it_loads(node: Node, stranger: Callable[..., Stranger]) -> None:
    """Whoever else answers where the engine will is not taken for it, hears no key, and is named."""
    (node.folder / "secret-0123abcd").write_text("the secret\n")
    (node.folder / "secret-0123abcd").chmod(0o600)
    request = node.launch_request("--start-s", "5", secret="secret-0123abcd", key_nonce="00" * 16)
    request = {**request, "served_model": "prod"}
    launching = node.start("launch", request)
    assert clock.wait_until(lambda: node.read("engine.json") is not None, 60)
    taker = stranger(int(node.declaration["port"]))
    assert taker.has_the_port()
    out, _ = launching.communicate(timeout=60)
    node.run("restore")

    assert "heard" not in taker.said
    assert '"ready": false' in out
    assert f"{taker.process.pid} python3 of user 65534" in out
