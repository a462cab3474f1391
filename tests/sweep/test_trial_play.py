"""The trial play: what nodes are handed, what came of it, and an end in time, whatever a node's command does."""

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sweep.play_bench import ANSWER, Bench, playing

from tokenpeak.node.production.answering import standing
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.sweep.ansible.result import Event, NodeResult, recorded, restored_by

DEAF = """
DOCUMENTATION = "name: deaf\\nshort_description: A connection that hands no input on, as Podman's."
from ansible.plugins.connection.local import Connection as Local

class Connection(Local):
    transport = "deaf"
    has_pipelining = False

    def exec_command(self, cmd, in_data=None, sudoable=True):
        return super().exec_command(cmd, in_data=b"", sudoable=sudoable)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One run of Ansible for all of these tests; nobody reaches `away` and `odd`, or uses `idle`."""
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": "1"}
    odd = {"ansible_connection": "nowhere.such.thing"}
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "deaf.py").write_text(DEAF)
    hosts = {"gpu1": {}, "gpu2": {}, "deaf": {"ansible_connection": "deaf"}, "away": away, "odd": odd, "idle": {}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_CONNECTION_PLUGINS", str(plugins))
        with playing(tmp_path_factory.mktemp("play"), hosts) as bench:
            yield bench


def test_steps_in_order_with_typed_answers(bench: Bench) -> None:
    """Requests are the commands' input, their outputs the answers; starts and ends of steps are events."""
    bench.on("gpu1", launch=ANSWER.format("{'ready': False, 'message': 'No.'}"), finish=ANSWER.format("{'log': 'x'}"))
    heard: list[Event] = []

    result = bench.carried_out("gpu1", "launch", "job", "finish", on_event=heard.append)

    assert result.ok, result.failure
    launch, finish = result.answer(LaunchAnswer), result.answer(FinishAnswer)
    assert launch is not None
    assert (False, "No.") == (launch.ready, launch.message)
    assert finish is not None
    assert "x" == finish.log
    state = str(bench.folder / "gpu1")
    assert [
        {"argv": [step, "--state", state], "request": json.dumps({"asked": step})} for step in ("launch", "finish")
    ] == bench.called("gpu1")
    steps = [(event.kind, event.step) for event in heard if event.step is not None]
    assert [("started", "launch"), ("ok", "launch"), ("started", "finish"), ("ok", "finish")] == steps
    assert result.spans["launch"][0] < result.spans["launch"][1] <= result.spans["finish"][0]


def test_connection_that_hands_no_input_on(bench: Bench) -> None:
    """The command reads its request all the same, and no file of it is left."""
    bench.on("deaf", launch=ANSWER.format("{'ready': False, 'message': os.readlink('/proc/self/fd/0')}"))

    result = bench.carried_out("deaf", "launch")

    assert result.ok, result.failure
    launch = result.answer(LaunchAnswer)
    assert launch is not None
    assert [json.dumps({"asked": "launch"})] == [call["request"] for call in bench.called("deaf")]
    assert not Path(str(launch.message)).exists()


def test_refusal_is_the_nodes_own_sentence(bench: Bench) -> None:
    """An error that the node explains is given in its words; a newer controller's and a person's are recognised."""
    for code, found in (("fenced", "fenced"), ("held", "held")):
        error = {"error": {"code": code, "text": "Somebody else has it."}}
        bench.on("gpu1", launch=f"{ANSWER.format(error)}; sys.exit(3)", finish=ANSWER.format("{}"))

        result = bench.carried_out("gpu1", "launch", "finish")

        assert "Somebody else has it." == result.failure
        assert "Somebody else has it." == getattr(result, found)
        assert "finish" in result.answers


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print('no such board', file=sys.stderr); sys.exit(3)", "no such board"),
        ("print('[' * 100000); sys.exit(1)", "Stop the engine and give the node back"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "Stop the engine and give the node back"),
        ("[print('noise' * 200, file=sys.stderr) for _ in range(5000)]; sys.exit('at last')", "at last"),
    ],
)
def test_failure_has_words(bench: Bench, script: str, words: str) -> None:
    """A command that dies or prints nonsense fails with the step's title or the last that it said."""
    bench.on("gpu1", finish=script)

    result = bench.carried_out("gpu1", "finish")

    assert {} == result.answers
    assert result.failure is not None
    assert words in result.failure
    assert len(result.failure) < 10_000


def test_production_that_is_not_back(bench: Bench) -> None:
    """An answer that says so is a failure, though the command ended well; no answer says neither."""
    said = {"phases": [], "restoration": {"restored": False, "was_running": True, "message": "It hangs."}}
    bench.on("gpu1", restore=ANSWER.format(said))
    result = bench.carried_out("gpu1", "restore")
    bench.on("gpu1", restore="sys.exit('no such board')")
    silent = restored_by(bench.carried_out("gpu1", "restore"))
    found = recorded(silent)

    assert not result.ok
    assert "restore" in result.answers
    assert silent.restored is None
    assert "whether production is back is not known" == standing(silent.restored)
    assert found is not None
    assert found.restored is False
    assert found.message.startswith("Not known: ")


def test_flood_is_cut(bench: Bench) -> None:
    """Output without end is a failure of its node within seconds; another node's step goes on meanwhile."""
    bench.on("gpu1", finish="while True: print('x' * 65536)")
    bench.on("gpu2", finish="import time; time.sleep(4); " + ANSWER.format({"log": "whole"}))
    others: list[NodeResult] = []
    other = threading.Thread(target=lambda: others.append(bench.carried_out("gpu2", "finish")))
    other.start()
    began = time.monotonic()

    result = bench.carried_out("gpu1", "finish")
    other.join(60)

    assert result.failure is not None
    assert re.search("it printed more than any answer has|the host printed too much", result.failure)
    assert time.monotonic() - began < 60
    (found,) = others
    assert "finish" in found.answers


HANGING = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
guard = subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
with open(os.path.join(here, "part"), "w") as file:
    print(os.getpid(), guard.pid, os.getsid(0), file=file)
os.rename(os.path.join(here, "part"), os.path.join(here, "pids"))
time.sleep(600)
"""
"""A command that has started a guard, which is to outlive it; `pids` are its own, the guard's, and its task's."""


def is_there(pid: int) -> bool:
    """Whether the process lives."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_trial_that_is_cut_short(bench: Bench) -> None:
    """A launch that hangs is ended soon, nothing of its round comes after it, and its guard is left to watch."""
    bench.on("gpu1", launch=HANGING, finish=ANSWER.format({}))
    pids = bench.folder / "gpu1" / "pids"
    began = time.monotonic()

    result = bench.carried_out("gpu1", "launch", "finish", cut_short=pids.exists)

    assert time.monotonic() - began < 20
    assert {} == result.answers
    assert ["launch"] == [call["argv"][0] for call in bench.called("gpu1")]  # type: ignore[index]
    command, guard, _ = map(int, pids.read_text().split())
    pids.unlink()
    assert not is_there(command)
    assert is_there(guard)
    os.kill(guard, signal.SIGKILL)


def test_nothing_is_waited_for_once_let_go(bench: Bench) -> None:
    """A step that hangs is left within half a second; what is handed out next has its own answer."""
    bench.on("gpu1", finish="import time; time.sleep(600)")
    gone = threading.Event()
    threading.Timer(1.5, gone.set).start()
    began = time.monotonic()

    assert NodeResult() == bench.carried_out("gpu1", "finish", let_go=gone.is_set)
    assert time.monotonic() - began < 5
    bench.on("gpu1", finish=ANSWER.format({"log": "second"}))
    finish = bench.carried_out("gpu1", "finish").answer(FinishAnswer)
    assert finish is not None
    assert "second" == finish.log


def ansible_processes(bench: Bench) -> dict[int, int]:
    """Pid → parent, of the play's own processes."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError, IndexError):
            if str(bench.folder / "hosts.yml").encode() in entry.read_bytes():
                status = entry.with_name("status").read_text()
                found[int(entry.parent.name)] = int(re.findall(r"PPid:\s+(\d+)", status)[0])
    return found


def test_ansible_that_is_killed(bench: Bench) -> None:
    """What was under way has failed with words; the next assignment starts Ansible anew, for every node."""
    bench.on("gpu1", finish="import time; time.sleep(600)")
    bench.on("gpu2", finish=ANSWER.format("{}"))

    def kill() -> None:
        """The first of Ansible's processes alone: those of tasks live on."""
        for pid, parent in ansible_processes(bench).items():
            if parent == os.getpid():
                os.kill(pid, signal.SIGKILL)

    threading.Timer(2.0, kill).start()
    result = bench.carried_out("gpu1", "finish")

    assert result.failure is not None
    assert "Ansible ended" in result.failure
    assert bench.carried_out("gpu2", "finish").ok
    bench.on("gpu1", finish=ANSWER.format("{}"))
    assert bench.carried_out("gpu1", "finish").ok
