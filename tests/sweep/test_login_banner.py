"""A login shell that prints, a banner with or without the end of its line: answers are found in what is printed."""

import sys
from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.loadgen.messages import Hello
from tokenpeak.loadgen.remote_worker_pool import HostChannel, HostLostError, LoadHost
from tokenpeak.loadgen.test_server_process import started
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.protocol.answers import RestoreAnswer, RestoreOutcome, as_json
from tokenpeak.node.protocol.frame import KEY, as_small_object, framed, unframed
from tokenpeak.sweep.inventory import Node
from tokenpeak.sweep.lease import lease_problem
from tokenpeak.sweep.node_command import run_node_command, run_python
from tokenpeak.sweep.node_files import NodeFiles
from tokenpeak.sweep.runner import _Collector

BANNERS = {
    "an open line": "Last login: today ",
    "lines": '\nWelcome to gpu1.\n{"motd": "hello"}\n*** {maintenance} on Friday ***\n[1] 2 3\n\n',
}
LOCAL = Node(name="gpu1", variables={"ansible_connection": "local"})
RESTORE_TASK = f"{paths.PLAYBOOKS}/roles/production/tasks/main.yml:2"


@pytest.fixture(params=list(BANNERS.values()), ids=list(BANNERS))
def banner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shell(tmp_path: Path, banner: str) -> Path:
    """The node's Python as one gets it by a login shell that greets."""
    (tmp_path / "banner").write_text(banner)
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
    declaration = {"state_dir": str(state), "python": str(shell)}

    restored = run_node_command(LOCAL, declaration, "restore", b"{}")
    refused = run_node_command(LOCAL, declaration, "launch", b"{}")
    renewal = [str(shell), "-I", str(state / "tokenpeak-node.pyz"), "lease", "--state"]

    assert isinstance(restored.answers["restore"], RestoreAnswer)
    assert restored.ok, restored.failure
    assert refused.answers["launch"].error is not None
    assert refused.failure == refused.answers["launch"].error.text
    assert lease_problem([*renewal, str(state)]) is None
    assert "TokenPeak is not installed in" in (lease_problem([*renewal, str(state / "nowhere")]) or "")


def test_restored_production_is_seen_behind_a_banner(banner: str, tmp_path: Path) -> None:
    """Production that serves is not called down because a shell greeted; the same by Ansible's own transport."""
    outcome = RestoreOutcome(restored=True, was_running=True, message="It serves.")
    printed = banner + framed({**as_json(RestoreAnswer(restoration=outcome)), "script": "abc"})
    (tmp_path / "tokenpeak-node.pyz").write_text(f"print({printed!r})")
    collector = _Collector(None)
    result = {"stdout": printed, "rc": 0}
    collector({"event": "runner_on_ok", "event_data": {"host": "gpu1", "task_path": RESTORE_TASK, "res": result}})

    by_ssh = run_node_command(LOCAL, {"state_dir": str(tmp_path)}, "restore", b"{}")

    assert by_ssh.ok
    for found in (by_ssh, collector.result("gpu1")):
        answer = found.answers["restore"]
        assert isinstance(answer, RestoreAnswer)
        assert answer.restoration is not None
        assert answer.restoration.restored


def test_files_of_a_node_are_seen_behind_a_banner(shell: Path, state: Path) -> None:
    """What is there already is not put there again by a playbook."""
    script = (state / "tokenpeak-node.pyz").read_bytes()
    declaration = {"state_dir": str(state), "python": str(shell)}
    files = NodeFiles(script=script, declaration=declaration)
    (state / "node.json").write_bytes(b"")
    (state / "tokenpeak-node.pyz").chmod(0o755)
    missing = run_python(LOCAL, files.look(str(shell)), "Look", limit_s=20, cancelled=lambda: False)
    from tokenpeak.node.state import content_of

    (state / "node.json").write_bytes(content_of(declaration))
    looked = run_python(LOCAL, files.look(str(shell)), "Look", limit_s=20, cancelled=lambda: False)

    assert not files.are_there(missing.printed)
    assert files.are_there(looked.printed), looked.printed


HOST = "import sys; from tokenpeak.loadgen import remote_worker; remote_worker.main()"


def test_load_host_behind_a_banner(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load host's first message is found, and a host that never sends one is named with its last words."""
    host = HostChannel(LoadHost(name="left", argv=(str(shell), "-m", "tokenpeak.loadgen.remote_worker")))
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


def test_test_server_behind_a_banner(banner: str, tmp_path: Path) -> None:
    """The port of a calibration's server is found."""
    (tmp_path / "banner").write_text(banner)
    with started(["sh", "-c", f"cat {tmp_path}/banner; echo; echo 8099; cat"]) as port:
        assert 8099 == port


@pytest.mark.parametrize(
    "printed", ["", "\n", "Welcome\n", '{"motd": 1}', '{"script": "abc"', "{" * 100_000, "9" * 10_000]
)
def test_no_answer_is_none(printed: str) -> None:
    """A greeting alone is no answer, nor is a part of one."""
    assert unframed(printed, KEY, as_small_object) is None
    answer = framed({"script": None, "log": "a\n" + '{"script": "forged"}' + "\n"})
    assert unframed(answer + printed, KEY, as_small_object) is not None
