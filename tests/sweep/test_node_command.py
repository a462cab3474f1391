"""A step as one command: its answer, its words, and an end in time, whatever the node's command does."""

import errno
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tokenpeak.node.protocol.answers import FinishAnswer, RestoreAnswer
from tokenpeak.node.shortfall import standing
from tokenpeak.sweep.inventory import Node
from tokenpeak.sweep.node_command import run_node_command, run_python
from tokenpeak.sweep.node_result import Event, NodeResult
from tokenpeak.sweep.restoration import recorded, restored_by

LOCAL = Node(name="gpu1", variables={"ansible_connection": "local"})


def ran(folder: Path, script: str, *, step: str = "finish", node: Node = LOCAL, **options: object) -> NodeResult:
    """What comes of the step where the node's command is this Python."""
    (folder / "tokenpeak-node.pyz").write_text(script)
    return run_node_command(node, {"state_dir": str(folder)}, step, b'{"asked": 1}', **options)  # type: ignore[arg-type]


def test_answer_is_typed_and_heard(tmp_path: Path) -> None:
    """The request is the command's input, its output the answer; the step's start and end are events."""
    heard: list[Event] = []
    script = "import json, sys; print(json.dumps({'script': 'abc', 'log': sys.stdin.read() + ' '.join(sys.argv[1:])}))"

    result = ran(tmp_path, script, on_event=heard.append)

    answer = result.answer(FinishAnswer)
    assert answer is not None
    assert f'{{"asked": 1}}finish --state {tmp_path}' == answer.log
    assert result.ok
    assert [("started", None), ("ok", answer)] == [(event.kind, event.answer) for event in heard]
    began, ended = result.spans["finish"]
    assert 0 < ended - began < 10


def test_refusal_is_the_nodes_own_sentence(tmp_path: Path) -> None:
    """An error that the node explains is given in its words; a newer controller's is recognised."""
    error = {"error": {"code": "fenced", "text": "Another controller has the sweep."}, "script": "abc"}

    result = ran(tmp_path, f"import sys; print({json.dumps(error)!r}); sys.exit(1)")

    assert "Another controller has the sweep." == result.failure
    assert "Another controller has the sweep." == result.fenced


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; print('no such board', file=sys.stderr); sys.exit(3)", "no such board"),
        ("import sys; print('[' * 100000); sys.exit(1)", "Stop the engine and give the node back"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "Stop the engine and give the node back"),
    ],
)
def test_failure_has_words(tmp_path: Path, script: str, words: str) -> None:
    """A command that dies or prints nonsense fails with the step's title or what it said."""
    result = ran(tmp_path, script)

    assert {} == result.answers
    assert result.failure is not None
    assert words in result.failure


def test_restore_that_did_not_restore_fails(tmp_path: Path) -> None:
    """An answer that says that production is not back is a failure, though the command ended well."""
    said = {
        "script": "abc",
        "phases": [],
        "restoration": {"restored": False, "was_running": True, "message": "It hangs."},
    }

    result = ran(tmp_path, f"print({json.dumps(said)!r})", step="restore")

    assert not result.ok
    assert isinstance(result.answers["restore"], RestoreAnswer)


def test_shared_connection_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSH says nothing where the process that keeps a shared connection was killed: the cause and what follows do."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    result = ran(tmp_path, "", node=Node(name="gpu1", variables={}))

    assert result.unreachable is not None
    assert "its process here was killed, or the network cut it. The next command opens another" in result.unreachable


def test_no_descriptor_is_left_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that can start no process says why, and what to do."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(subprocess, "Popen", refused)
    result = ran(tmp_path, "")

    assert result.failure is not None
    assert "descriptors are used up" in result.failure
    assert "ulimit -n" in result.failure


def test_production_that_is_not_known_to_be_back(tmp_path: Path) -> None:
    """A node that gives no account of production is not called down: not by what is shown, nor by what is recorded."""
    silent = restored_by(ran(tmp_path, "import sys; sys.exit('no such board')", step="restore"))
    found = recorded(silent)

    assert silent.restored is None
    assert "whether production is back is not known" == standing(silent.restored)
    assert found is not None
    assert found.restored is False
    assert found.message.startswith("Not known: ")


def test_node_that_a_person_holds(tmp_path: Path) -> None:
    """A launch that is refused because a person has given the node back is recognised."""
    error = {"error": {"code": "held", "text": "It is held."}, "script": "abc"}

    assert "It is held." == ran(tmp_path, f"import sys; print({json.dumps(error)!r}); sys.exit(3)").held


def test_flood_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output without end is an error within seconds, and its process is ended."""
    monkeypatch.setattr("tokenpeak.sweep.node_command.MOST_PRINTED_BYTES", 1 << 20)
    began = time.monotonic()

    result = ran(tmp_path, "while True: print('x' * 65536)")

    assert result.failure is not None
    assert "it printed more than 1 MiB" in result.failure
    assert time.monotonic() - began < 15


def test_long_words_are_kept_from_their_end(tmp_path: Path) -> None:
    """Of an error stream without bound the last lines are kept."""
    result = ran(
        tmp_path,
        "import sys; [print('noise' * 200, file=sys.stderr) for _ in range(5000)]; print('at last', file=sys.stderr); "
        "sys.exit(1)",
    )

    assert result.failure is not None
    assert result.failure.endswith("at last")
    assert len(result.failure) < 10_000


@pytest.mark.integration
def test_cancelled_step_ends_soon(tmp_path: Path) -> None:
    """A command that ignores a polite end and leaves its output open is left within seconds, and its group ended."""
    cancel = threading.Event()
    pid_file = tmp_path / "pid"
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    threading.Timer(1.0, cancel.set).start()
    began = time.monotonic()

    result = ran(tmp_path, script, cancelled=cancel.is_set)

    assert time.monotonic() - began < 12
    assert {} == result.answers
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_host_out_of_reach(tmp_path: Path) -> None:
    """SSH that gets nowhere is a node out of reach, with SSH's own words and what to do."""
    away = Node(name="gpu1", variables={"ansible_host": "127.0.0.1", "ansible_port": 1})

    result = ran(tmp_path, "", node=away)

    assert result.unreachable is not None
    assert "127.0.0.1" in result.unreachable
    assert "refused" in result.unreachable


def test_python_that_is_not_there(tmp_path: Path) -> None:
    """A node without the declared Python says which one."""
    result = run_node_command(LOCAL, {"state_dir": str(tmp_path), "python": "/opt/none/python3"}, "finish", b"{}")

    assert result.failure is not None
    assert "/opt/none/python3" in result.failure


def test_node_that_hangs_is_left_after_its_limit(tmp_path: Path) -> None:
    """A command that prints nothing for longer than its limit fails with words, whoever's it is."""
    began = time.monotonic()
    probed = ran(tmp_path, "import time; time.sleep(60)", step="probe", limit_s=0.5)
    looked = run_python(LOCAL, ["sleep", "60"], "Look", limit_s=0.5, cancelled=lambda: False)

    assert time.monotonic() - began < 20
    assert "Probe the node: nothing came back within 0.5 s: log in there and see what hangs" == probed.failure
    assert not looked.in_time
    assert not looked.result.ok


def test_production_that_is_not_ready_fails(tmp_path: Path) -> None:
    """Production that was started and does not answer is a failure, though the command ended well."""
    said = {"script": "abc", "changed": True, "message": "It does not answer.", "ready": False}
    result = ran(tmp_path, f"print({json.dumps(said)!r})", step="produce")

    assert "Start production: It does not answer." == result.failure


def test_python_that_is_missing_is_named() -> None:
    """A node without the interpreter of Ansible's modules says how it gets one."""
    words = ["sh", "-c", "exit 127"]
    looked = run_python(LOCAL, words, "Look", limit_s=10, cancelled=lambda: False)

    assert "there is no Python at sh. Install Python 3.8" in (looked.result.failure or "")
