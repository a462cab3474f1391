"""What another user of the node could do to one who has root: each attack with a real second user and real files."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node, node_in, start_again
from tests.node.test_launch import models_served

from tokenpeak.node import installation
from tokenpeak.node.__main__ import answered
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.state import State

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")

OTHER = 65534
"""nobody"""
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in /tmp that every user can enter, root's own."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-rights-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def command(folder: Path, word: str, *, limited: bool = False) -> dict[str, Any]:
    """The answer of a node command that root runs on a state folder."""
    return answered(word, folder, None, limited=limited)[0]


def command_of_script(bundle: Path, *words: str, cwd: Path, **options: Any) -> dict[str, Any]:
    """The answer of a node command that root types in this folder."""
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", str(bundle), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
        **options,
    )
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def hostile_declaration(marker: Path) -> str:
    """A declaration whose production is asked by a command that leaves a mark."""
    check = ["sh", "-c", f"id -u > {marker}"]
    return json.dumps({"production": {"manager": "command", "check": check, "start": check, "stop": check}})


def script(path: Path, text: str, owner: int = 0, mode: int = 0o755) -> Path:
    """A shell script with an owner."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


# One word, and nothing else, comes through root's command.


@pytest.fixture
def guard_command(place: Path) -> Iterator[tuple[Path, Path]]:
    """Root's command with its state folder, as `tokenpeak install` writes them; and a mark that attacks leave."""
    home = Path(tempfile.mkdtemp(prefix="tokenpeak-rights-", dir="/var/lib"))
    state = State.make(home / "state") if hasattr(State, "make") else State(home / "state")
    write_bundle(state.path("tokenpeak-node.pyz"))
    state.write(
        "node.json", {"production": {"manager": "none"}, "engine": {"command": ["/bin/true"], "user": "nobody"}}
    )
    installation.put_commands(state, {"guard_command": str(home / "tokenpeak-node")})
    marker = place / "was-here"
    evil = place / "shm"
    evil.mkdir()
    (evil / "node.json").write_text(hostile_declaration(marker))
    os.chown(evil / "node.json", OTHER, OTHER)
    evil.chmod(0o1777)
    yield home / "tokenpeak-node", marker
    shutil.rmtree(home)


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--state", "SHM"],
        ["probe", "--state", "SHM"],
        ["launch", "--request", "/etc/shadow"],
        ["status --state SHM"],
        ["status\n"],
        ["guard"],
        ["install"],
        [],
    ],
)
def test_guard_command_takes_one_word(guard_command: tuple[Path, Path], words: list[str]) -> None:
    """Whatever else its caller gives it ends it before Python starts; a state folder of the caller's is never read."""
    wrapper, marker = guard_command
    given = [word.replace("SHM", str(marker.parent / "shm")) for word in words]

    done = subprocess.run([wrapper, *given], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert not marker.exists(), "a command of the caller's ran as root"
    assert 2 == done.returncode
    assert "takes one word of probe, launch, finish, restore, status, lease" in done.stderr


def test_command_of_trials_changes_no_definition(guard_command: tuple[Path, Path]) -> None:
    """Whoever may run trials has no word that changes production, nor one that confirms a change."""
    wrapper, _ = guard_command
    state = re.search(r"--state (\S+)", wrapper.read_text())
    assert state

    for word in ("change", "confirm", "describe", "put"):
        done = subprocess.run([wrapper, word], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (2, "") == (done.returncode, done.stdout)
        # Behind the shell's check Python's own.
        answer = command(Path(state[1]), word, limited=True)
        assert "is for root alone" in answer["error"]["text"]


def test_command_of_applies(place: Path) -> None:
    """It takes an apply's words and no trial's; `tests/attacks` have what it starts."""
    home = Path(tempfile.mkdtemp(prefix="tokenpeak-rights-", dir="/var/lib"))
    try:
        state = State.make(home / "state")
        write_bundle(state.path("tokenpeak-node.pyz"))
        build = {"command": ["/opt/vllm/bin/vllm", "serve"], "user": "nobody"}
        state.write("node.json", {"production": {"manager": "none"}, "engine": build})
        installation.put_commands(state, {"apply_command": str(home / "tokenpeak-apply")})

        def run(word: str, request: dict[str, Any]) -> dict[str, Any]:
            done = subprocess.run(
                [home / "tokenpeak-apply", word], input=json.dumps(request), capture_output=True, text=True, check=False
            )
            return dict(json.loads(done.stdout)) if done.stdout else {"status": done.returncode}

        change = {"apply_id": "a", "holder": "h", "was_sha256": "0" * 64, "lease_s": 5, "confirm_within_s": 9}
        edit = {"words": ["/bin/sh", "-c", "id"], "env": {}, "image": None}

        assert {"status": 2} == run("launch", {})
        assert {"status": 2} == run("install", {})
        assert "manager none" in run("describe", {})["problem"]
        assert "does not run" in run("change", {**change, "edit": edit})["error"]["text"]
    finally:
        shutil.rmtree(home)


# State folders and declarations of others.


@pytest.mark.parametrize(
    "kind", ["shared memory", "another's", "group", "below another's", "below an open one", "link"]
)
def test_state_folder_in_the_hands_of_others(place: Path, kind: str) -> None:
    """Root reads no declaration from a folder that somebody else could write or put in its place."""
    marker = place / "was-here"
    above = place / "above"
    above.mkdir()
    folder = above / "state"
    folder.mkdir(mode=0o700)
    (folder / "node.json").write_text(hostile_declaration(marker))
    (folder / "node.json").chmod(0o600)
    if kind == "shared memory":
        folder.chmod(0o1777)
    elif kind == "group":
        folder.chmod(0o770)
    elif kind == "another's":
        os.chown(folder, OTHER, OTHER)
    elif kind == "below another's":
        os.chown(above, OTHER, OTHER)
    elif kind == "below an open one":
        above.chmod(0o777)
    else:
        (place / "open").mkdir()
        (place / "open").chmod(0o777)
        (place / "open" / "link").symlink_to(folder)
        folder = place / "open" / "link"

    answer = command(folder, "status")

    assert not marker.exists()
    assert "state" == answer["error"]["code"]


@pytest.mark.parametrize("kind", ["another's", "group may write", "link"])
def test_declaration_of_others(place: Path, kind: str) -> None:
    """A declaration that is not its own is refused, though the folder is."""
    marker = place / "was-here"
    folder = place / "state"
    folder.mkdir(mode=0o700)
    declared = folder / "node.json"
    declared.write_text(hostile_declaration(marker))
    declared.chmod(0o600)
    if kind == "another's":
        os.chown(declared, OTHER, OTHER)
    elif kind == "group may write":
        declared.chmod(0o660)
    else:
        declared.rename(place / "elsewhere.json")
        declared.symlink_to(place / "elsewhere.json")

    answer = command(folder, "status")

    assert not marker.exists()
    assert str(declared) in answer["error"]["text"]


def test_only_install_makes_folders_and_changes_modes(place: Path) -> None:
    """Any other command leaves modes as they are and makes nothing; it says what to do instead."""
    there = place / "x"
    there.mkdir(mode=0o755)

    command(there, "status")
    answer = command(place / "missing" / "state", "status")

    assert 0o755 == stat.S_IMODE(there.stat().st_mode)
    assert not (place / "missing").exists()
    assert "not_installed" == answer["error"]["code"]
    assert "tokenpeak install" in answer["error"]["text"]


# The engine is asked as its own user.


def declare(place: Path, engine: dict[str, Any], **more: Any) -> Path:
    """A node with this engine; its state folder."""
    folder = place / "state"
    folder.mkdir(mode=0o700)
    (folder / "node.json").write_text(json.dumps({"engine": engine, "port": 18099, **more}))
    return folder


def test_module_in_the_callers_folder_is_not_run(place: Path) -> None:
    """`python -m vllm…` as the engine's command finds no module in the folder that the probe is started in."""
    marker = place / "was-here"
    work = place / "work"
    work.mkdir()
    (work / "vllm.py").write_text(f"open({str(marker)!r}, 'w').write('x')\nprint('0.32.0')\n")
    folder = declare(place, {"command": [SYSTEM_PYTHON, "-m", "vllm", "serve"]})

    command_of_script(write_bundle(folder / "tokenpeak-node.pyz"), "probe", "--state", str(folder), cwd=work)

    assert not marker.exists()


def changeable(place: Path, kind: str, does: str) -> list[str]:
    """A command of which others than root can change this; what it does leaves a mark."""
    home = place / "bin"
    home.mkdir()
    program = script(home / "program", f"id -u > {place / 'was-here'}; {does}")
    if kind in ("program", "argument"):
        os.chown(program, OTHER, OTHER)
    elif kind == "folder":
        home.chmod(0o777)
    else:
        interpreter = place / "interpreter"
        shutil.copy("/bin/sh", interpreter)
        os.chown(interpreter, OTHER, OTHER)
        program.write_text(program.read_text().replace("#!/bin/sh", f"#!{interpreter}"))
    return ["/bin/sh", str(program)] if kind == "argument" else [str(program)]


@pytest.mark.parametrize("kind", ["program", "folder", "interpreter"])
def test_root_runs_no_engine_that_others_can_write(place: Path, kind: str) -> None:
    """Without a user of the engine's own, one that others may change is refused by install and not asked by probe."""
    folder = declare(place, {"command": [*changeable(place, kind, "echo 0.32.0"), "serve"]})

    installed = command(folder, "install")
    probed = command(folder, "probe")

    assert not (place / "was-here").exists()
    assert "rights" == installed["error"]["code"]
    assert "tokenpeak_engine_user" in installed["error"]["text"]
    assert probed["engine_version"] is None
    assert any("whoever that is would be root" in problem for problem in probed["problems"])


@pytest.mark.parametrize("kind", ["program", "folder", "interpreter", "argument"])
def test_root_runs_no_power_command_that_others_can_write(place: Path, kind: str) -> None:
    """The command that prints the node's power is refused by install, and neither probe nor a trial runs it."""
    words = changeable(place, kind, "echo 300")
    folder = declare(place, {"command": ["/bin/true"], "user": "nobody"}, power_command=words)
    samples = folder / "telemetry.jsonl"

    installed = command(folder, "install")
    probed = command(folder, "probe")
    (folder / "engine.json").write_text("{}")
    sampler = start_again(["telemetry", "--state", str(folder)], folder / "telemetry.log")
    has_sampled = clock.wait_until(lambda: samples.exists() and samples.read_text().count("\n") > 1, 60)
    os.kill(sampler.pid, signal.SIGKILL)

    assert has_sampled, (folder / "telemetry.log").read_text()
    assert not (place / "was-here").exists()
    assert "rights" == installed["error"]["code"]
    assert "tokenpeak_power_command" in installed["error"]["text"]
    assert any("whoever that is would be root" in problem for problem in probed["problems"])


# What a request may hold.


@pytest.fixture(scope="module")
def serving_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, dict[str, Any]]]:
    """A node whose production serves, and goes on serving: what these tests ask for is refused."""
    with node_in(tmp_path_factory.mktemp("serving") / "state") as node:
        production = node.production()
        node.run("produce")
        node.declare(limits={"trial_deadline_max_s": 40_000})
        yield node, production


@pytest.fixture
def declared_anew(serving_node: tuple[Node, dict[str, Any]]) -> Iterator[tuple[Node, dict[str, Any]]]:
    """The same node, to be declared otherwise for one test."""
    node, production = serving_node
    before = dict(node.declaration)
    yield node, production
    node.declaration = before
    node.declare()


def refused(node: Node, production: dict[str, Any], request: dict[str, Any], command_word: str = "launch") -> str:
    """The words by which a request is refused; production was never touched."""
    before = node.read("production.json")
    answer = node.run(command_word, request)
    assert before == node.read("production.json")
    assert b'"prod"' in models_served(production)
    assert (None, None) == (node.read("record.json"), node.read("lock.json"))
    return str(answer["error"]["text"])


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"LD_PRELOAD": "/tmp/evil.so"}, "LD_PRELOAD may not be set by a config"),
        ({"PATH": "/tmp"}, "PATH may not be set by a config"),
        ({"VLLM_NCCL_SO_PATH": "/tmp/evil.so"}, "VLLM_NCCL_SO_PATH loads code"),
        ({"VLLM_API_KEY": "mine"}, "VLLM_API_KEY loads code, names a place or opens the engine"),
        ({"HF_TOKEN": "x"}, "HF_TOKEN is not allowed: add the name to tokenpeak_engine_env_allowed"),
        (
            {"VLLM_A": "1\nLD_PRELOAD=/tmp/evil.so"},
            "env has VLLM_A, whose value has the hidden character U+000A at place 2",
        ),
        ({"VLLM_A\nB": "1"}, "not the name of an environment variable"),
    ],
)
def test_environment_that_a_config_may_not_set(serving_node: tuple[Node, dict[str, Any]], env: Any, said: str) -> None:
    """Names that load other code, and values that would be several variables, are refused before anything happens."""
    node, production = serving_node

    assert said in refused(node, production, node.launch_request(env=env))


def test_environment_that_is_declared(node: Node) -> None:
    """The inventory's own variables reach the engine whatever they are called, and a name that it allows does too."""
    engine = node.declaration["engine"]
    node.declare(engine={**engine, "env": {"PYTHONUNBUFFERED": "1"}, "env_allowed": ["VLLM_CACHE_ROOT"]})
    request = node.launch_request(env={"VLLM_CACHE_ROOT": "/tmp/x"})
    said = "import os; print(os.environ['PYTHONUNBUFFERED'], os.environ['VLLM_CACHE_ROOT'])"

    launched = node.run("launch", {**request, "argv": [sys.executable, "-c", said]})
    other = node.run("launch", node.launch_request(env={"VLLM_LOGGING_LEVEL": "DEBUG"}))

    assert "1 /tmp/x" in launched["log_tail"]
    assert "VLLM_LOGGING_LEVEL is not allowed" in other["error"]["text"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lease_s": ...}, "lease_s is missing"),
        ({"env": ...}, "env is missing"),
        ({"lease_s": 0}, "lease_s is 0; more than 0"),
        ({"lease_s": True}, "lease_s is True, not a number"),
        ({"lease_s": float("nan")}, "lease_s is nan; more than 0"),
        ({"lease_s": 601}, "lease_s is 601 s and tokenpeak_lease_max_s of the inventory 600"),
        ({"trial_deadline_s": 50_000}, "tokenpeak_trial_deadline_max_s of the inventory is 40000"),
        ({"production_ready_s": []}, "production_ready_s is a list of 0, not a number"),
        ({"argv": "vllm serve"}, "argv is not a list"),
        ({"argv": ["vllm", 7]}, "argv has a word, number 2, that is of the type int"),
        ({"argv": ["vllm", "a\0b"]}, "argv has a word, number 2, that has the hidden character U+0000"),
        ({"trial_id": "../../etc/x"}, "trial_id is '../../etc/x'"),
        ({"holder": ""}, "holder has 0 characters"),
        ({"secret": "../node.json"}, "secret is '../node.json', not the name of a secret"),
        ({"leese_s": 60}, "'leese_s' is unknown"),
    ],
)
def test_request_is_checked_whole_before_anything_is_touched(
    serving_node: tuple[Node, dict[str, Any]], change: dict[str, Any], said: str
) -> None:
    """A field that is missing, unknown, of another type or out of range names itself; production serves on."""
    node, production = serving_node
    request = {name: value for name, value in {**node.launch_request(), **change}.items() if value is not ...}

    assert said in refused(node, production, request)


# Files of secrets.


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
@pytest.mark.parametrize("which", ["env_file", "api_key_file"])
def test_file_of_secrets_that_others_can_read(
    declared_anew: tuple[Node, dict[str, Any]], tmp_path: Path, which: str, mode: int
) -> None:
    """Said by install and probe, and refused by launch before production is touched, with the command to type."""
    node, production = declared_anew
    secrets = tmp_path / "secrets"
    secrets.write_text("HF_TOKEN=canary\n")
    secrets.chmod(mode)
    if which == "env_file":
        node.declare(engine={**node.declaration["engine"], "env_file": str(secrets)})
    else:
        node.declare(production={**production, "api_key_file": str(secrets)})
    expected = f"`chmod 0600 {secrets}`"

    assert expected in refused(node, production, node.launch_request())
    assert expected in node.run("install")["error"]["text"]
    assert any(expected in problem for problem in node.run("probe")["problems"])
    secrets.chmod(0o600)
    assert "error" not in node.run("install")
