"""A login shell that prints, a banner with or without the end of its line: answers are found in what is printed."""

import json
import sys
from pathlib import Path

import pytest

from tokenpeak.loadgen.workers.messages import Hello
from tokenpeak.loadgen.workers.remote import HostChannel, HostLostError, LoadHost
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.protocol.answers import RestoreAnswer
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.trial.play import TrialPlay

BANNERS = {
    "no text": "Willkommen, Gr\xfc\xdfe\n",
    "an open line": "Last login: today ",
    "lines": '\nWelcome to gpu1.\n{"motd": "hello"}\n*** {maintenance} on Friday ***\n[1] 2 3\n\n',
}


@pytest.fixture(params=list(BANNERS.values()), ids=list(BANNERS))
def banner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shell(tmp_path: Path, banner: str) -> Path:
    """The node's Python as one gets it by a login shell that greets."""
    (tmp_path / "banner").write_text(banner, encoding="latin-1")
    path = tmp_path / "python3"
    path.write_text(f'#!/bin/sh\ncat {tmp_path}/banner\n{sys.executable} "$@"\ns=$?\necho "Bye."\nexit $s\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    write_bundle(folder / "tokenpeak-node.pyz")
    (folder / "node.json").write_text("{}")
    (folder / "node.json").chmod(0o600)
    return folder


def test_answer_behind_a_banner(shell: Path, state: Path) -> None:
    """The real node script's answers arrive, refusals too, whatever is printed around them."""
    variables = {"ansible_connection": "local", "tokenpeak_state_dir": str(state), "tokenpeak_python": str(shell)}
    (state.parent / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"gpu1": variables}}}))
    (state.parent / "empty.json").write_text("{}")
    node = Node(name="gpu1", variables=variables)
    inventory = Inventory(name="x", hosts_path=state.parent / "hosts.yml", nodes=(node,))
    with TrialPlay(inventory, ("gpu1",)) as play:
        restored = play.carry_out("gpu1", {"restore": str(state.parent / "empty.json")})
        refused = play.carry_out("gpu1", {"launch": str(state.parent / "empty.json")})

    assert isinstance(restored.answers["restore"], RestoreAnswer)
    assert restored.ok, restored.failure
    assert refused.answers["launch"].error is not None
    assert refused.failure == refused.answers["launch"].error.text


def test_load_host_behind_a_banner(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load host's first message is found, and a host that never sends one is named with its last words."""
    host = HostChannel(LoadHost(name="left", argv=(str(shell), "-m", "tokenpeak.loadgen.workers.remote")))
    try:
        _, hello = host.expect(Hello, 60)
    finally:
        host.close()
    silent = HostChannel(LoadHost(name="right", argv=(str(shell), "-c", "pass")))
    try:
        with pytest.raises(HostLostError, match="right was lost"):
            silent.expect(Hello, 60)
    finally:
        silent.close()

    assert hello.cores > 0
