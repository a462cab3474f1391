"""Whoever may send root's command a request sends what is not his, or more than a node can take.

A hidden line end that makes two lines of one in supervisord's file, times of a month or of a billionth of a second,
the highest generation of a claim, a model's folder that only root can read, leases in any number, a probe that shows
tokens.
"""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import needs_root
from tests.node.conftest import Node

from tokenpeak.node import installation
from tokenpeak.node.__main__ import answered
from tokenpeak.node.engine import models
from tokenpeak.node.guard import heartbeats, lease
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import DECLARATION, State, content_of
from tokenpeak.node.probe.probe import probe
from tokenpeak.node.production import production
from tokenpeak.node.production.balancers import HaproxyBalancer
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.command import STARTED
from tokenpeak.node.protocol.requests import (
    ChangeRequest,
    ConfirmRequest,
    FinishRequest,
    HeartbeatRequest,
    LaunchRequest,
    NodeRequest,
    PutRequest,
    RestoreRequest,
    parse,
)

TRIAL = {"trial_id": "0000-a", "holder": "h"}
LAUNCH: dict[str, Any] = {
    **TRIAL,
    "argv": ["vllm", "serve"],
    "env": {},
    "served_model": "m",
    "deadline_s": 100,
    "lease_s": 60,
    "trial_deadline_s": 600,
}
CHANGE: dict[str, Any] = {
    "apply_id": "a",
    "holder": "h",
    "was_sha256": "0" * 64,
    "lease_s": 5,
    "confirm_within_s": 9,
    "edit": {"words": [0], "env": {}, "image": None},
}
MONTH_S = 31 * 86_400


@pytest.mark.parametrize("limits", [{"trial_deadline_max_s": 10_000}, {}])
@pytest.mark.parametrize(
    ("command", "request_", "times"),
    [
        *(
            ("launch", LAUNCH, {field: MONTH_S})
            for field in ("engine_stop_s", "production_ready_s", "trial_deadline_s", "deadline_s")
        ),
        ("launch", LAUNCH, {"trial_deadline_s": 86_000, "engine_stop_s": 600, "production_ready_s": 600}),
        *(("finish", TRIAL, {field: MONTH_S}) for field in ("engine_stop_s", "production_ready_s")),
        *(("change", CHANGE, {field: MONTH_S}) for field in ("confirm_within_s", "production_ready_s")),
    ],
)
def test_times_are_bounded(
    tmp_path: Path, limits: dict[str, float], command: str, request_: dict[str, Any], times: dict[str, float]
) -> None:
    """Each is bounded, by the default too where nothing is declared, and so are all together."""
    State.make(tmp_path / "state").put(DECLARATION, content_of({"limits": limits}), 0o600)
    path = tmp_path / "request.json"
    path.write_text(json.dumps({**request_, **times}))

    answer, _ = answered(command, tmp_path / "state", str(path))

    assert "tokenpeak_trial_deadline_max_s of the inventory is" in answer["error"]["text"]


ATTACK = "x{}command=/bin/sh"


def places(word: str) -> list[tuple[type[NodeRequest], dict[str, Any]]]:
    """Requests that have the word in each place that takes a text."""
    edit = CHANGE["edit"]
    return [
        (LaunchRequest, {**LAUNCH, "argv": ["vllm", word]}),
        (LaunchRequest, {**LAUNCH, "env": {"VLLM_A": word}}),
        (LaunchRequest, {**LAUNCH, "env": {f"VLLM_A{word}": "1"}}),
        *(
            (LaunchRequest, {**LAUNCH, name: word})
            for name in ("trial_id", "holder", "served_model", "engine", "model")
        ),
        (LaunchRequest, {**LAUNCH, "claim": {"sweep_id": word, "generation": 1}}),
        (LaunchRequest, {**LAUNCH, "production_at_start": {"running": True, "model": word}}),
        (LaunchRequest, {**LAUNCH, word: 1}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "words": [0, word]}}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "env": {"VLLM_A": word}}}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "image": word}}),
        (ConfirmRequest, {"apply_id": "a", "holder": word}),
        (FinishRequest, {"trial_id": "0000-a", "holder": word}),
        (RestoreRequest, {"holder": word}),
        (HeartbeatRequest, {"number": 1, "holder": word}),
        (PutRequest, {"declaration": {"production": {"manager": "supervisord", "unit": word}}}),
        (PutRequest, {"declaration": {"engine": {"env": {word: "1"}}}}),
        (PutRequest, {"declaration": {"production": {"start": ["sh", word]}}}),
        (PutRequest, {"declaration": {}, "secret": "secret-00000000", "secret_value": word}),
    ]


@pytest.mark.parametrize("hidden", ["\r", "\0", "\x1b", "\x85", "\u202e", "\ud800"])
def test_no_word_has_a_hidden_character(hidden: str) -> None:
    """In no place of any request, and the answer has no such character either."""
    word = ATTACK.format(hidden)

    for kind, given in places(word):
        with pytest.raises(ScriptError, match="nothing was touched") as refused:
            parse(kind, given)
        assert hidden not in refused.value.text, given


def model_in(folder: Path, mode: int = 0o755) -> Path:
    """A folder with a model's file."""
    folder.mkdir(mode=mode)
    (folder / "config.json").write_text("{}")
    (folder / "pin").write_text("1234")
    return folder


@needs_root
def test_model_that_only_root_can_read(place: Path) -> None:
    """With the engine's user it is not there, and its digest is not made."""
    secret, open_to_all = model_in(place / "secret", 0o700), model_in(place / "open")
    build, user = {"command": ["vllm"]}, pwd.getpwuid(65534).pw_name

    assert models.model_digest(build, str(secret), {}, [], user) is None
    assert not models.is_present(str(secret), {}, [], user)
    assert "is not on the node" in (models.model_problem(build, str(secret), {}, [], user) or "")
    assert (models.model_digest(build, str(open_to_all), {}, [], user) or "").startswith("sha256:")
    assert models.is_present(str(open_to_all), {}, [], user)


@pytest.mark.parametrize("server", ["b/s;disable server b/t", "b/s\nshow info"])
def test_balancer_s_words(tmp_path: Path, server: str) -> None:
    """HAProxy's socket takes several commands in a line: no name becomes one, on the way back either."""
    manager = make_manager({"manager": "none"}, State.make(tmp_path / "state"))
    balancer = HaproxyBalancer({"socket": str(tmp_path / "socket"), "servers": [server]}, manager)

    for verb in (balancer.rejoin, balancer.leave):
        with pytest.raises(ScriptError, match="more than a name"):
            verb([server])


def test_generation_rises_by_steps(tmp_path: Path) -> None:
    """A leap is refused and noted nowhere; whoever resumes is some generations further, also of what is noted."""
    state = State.make(tmp_path / "state")

    for generation in (2**31 - 1, 1002):
        with pytest.raises(ScriptError, match=f"generation {generation}, and of this sweep at most 1001") as refused:
            lease.note_generation(state, {"sweep_id": "s", "generation": generation}, "evil")
        assert "request" == refused.value.code
    assert {} == lease.generations(state)

    for generation in (1001, 2001):
        lease.note_generation(state, {"sweep_id": "s", "generation": generation}, f"controller {generation}")
        assert {"s": generation} == lease.generations(state)
    with pytest.raises(ScriptError, match="at most 3001"):
        lease.note_generation(state, {"sweep_id": "s", "generation": 3002}, "evil")


HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "ab") as turns:
    fcntl.lockf(turns, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
    print(1, flush=True)
    time.sleep(60)
"""


@contextmanager
def others(state: State, number: int, word: str) -> Iterator[None]:
    """So many other processes that have a turn of this word, in one."""
    first = installation.TRIAL_COMMANDS.index(word) * installation.MOST_AT_ONCE
    words = [str(state.path(installation.TURNS)), str(first), str(number)]
    with subprocess.Popen([sys.executable, "-S", "-c", HOLD, *words], stdout=subprocess.PIPE) as holding:
        assert holding.stdout
        assert b"1\n" == holding.stdout.readline()
        try:
            yield
        finally:
            holding.kill()


def test_leases_at_a_time(node: Node) -> None:
    """One more is refused, in words; other words, the command of applies, and root itself are not kept from theirs."""
    state = State(node.folder)
    with others(state, installation.MOST_AT_ONCE, "lease"):
        refused, status = answered("lease", node.folder, None, limited=True)
        with installation.turn(state, "restore", for_apply=False), installation.turn(state, "lease", for_apply=True):
            pass

    assert 3 == status
    assert f"`lease` runs {installation.MOST_AT_ONCE} times on this node already" in refused["error"]["text"]


def test_lease_without_a_line(node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends by itself, and says why."""
    reading, writing = os.pipe()
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        os.close(writing)

    monkeypatch.setattr(heartbeats, "SILENT_S", 0.05)
    monkeypatch.setattr(heartbeats, "_LOOK_S", 0.02)
    monkeypatch.setattr(heartbeats.os, "_exit", end)
    with os.fdopen(reading) as silent:
        monkeypatch.setattr(sys, "stdin", silent)
        os.write(writing, json.dumps({"number": 1, "holder": "nobody"}).encode() + b"\n")
        heartbeats.listen(State(node.folder))

    assert [3] == ended
    assert "No line of the lease came for 0.05 s" in capfd.readouterr().err


NO_TIME_S = 1e-9
URL = "http://127.0.0.1:9"


def recorded(declared: dict[str, Any]) -> dict[str, Any]:
    own = {"unit": None, "running": True, "url": declared["url"], "model": "m", "definition": {}}
    return {"manager": "command", **own, "declared": declared}


def test_production_that_loads(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started once, and the next tries wait for that start."""
    for name in ("start", "stop"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/done\n")
        (tmp_path / name).chmod(0o755)
    declared = {"manager": "command", "url": URL, "start": [f"{tmp_path}/start"], "stop": [f"{tmp_path}/stop"]}

    for _ in range(3):
        wrong = production.bring_back(recorded(declared), state, NO_TIME_S, Phases(state))
        assert wrong is not None

    assert ["start"] == (tmp_path / "done").read_text().split()
    assert state.has(STARTED)
    assert make_manager(declared, state).is_running()


TOKEN = "T0KEN"
BUILD = {"image": "vllm:1", "args": ["--env", f"HF_TOKEN={TOKEN}", f"--env=MY_SECRET={TOKEN}", "--ipc", "host"]}
DECLARED = {
    "node": "gpu-1",
    "host": "127.0.0.1",
    "port": 8099,
    "model": {"name": "m", "served_name": "m", "path": None},
    "limits": {"lease_max_s": 60},
    "state_dir": "/var/lib/tokenpeak",
    "python": "/usr/bin/python3",
    "engine": {"user": "nobody", "env": {"HF_TOKEN": TOKEN}},
    "engines": [{"name": "new", "build": BUILD}],
    "production": {
        "manager": "command",
        "start": ["/bin/true", "--x", TOKEN],
        "stop": ["/bin/true", "--x", TOKEN],
        "check": ["/bin/true", "--x", TOKEN],
        "answers_with": "command",
        "answer_command": ["/bin/true", "--x", TOKEN],
    },
    "notify": [{"webhook": f"https://hooks.example/{TOKEN}"}, {"command": ["/bin/true", TOKEN]}],
    "drain": {"before": ["/bin/true", TOKEN], "after": ["/bin/true", TOKEN], "wait": {"seconds": 1}},
    "power_command": ["/bin/echo", "1", "W", "#", TOKEN],
    "textfile_dir": f"/{TOKEN}",
    "bake": {"x": TOKEN},
}


def test_probe_shows_no_token(tmp_path: Path) -> None:
    """But all that a controller needs which may only run the command."""
    answer = json.loads(json.dumps(probe(State.make(tmp_path / "state"), DECLARED).declaration))

    assert TOKEN not in json.dumps(answer)
    kept = ("node", "host", "port", "model", "limits", "state_dir", "python")
    assert {name: DECLARED[name] for name in kept} == {name: answer[name] for name in kept}
    assert {"engines", "production"} == set(answer) - set(kept)
    assert ["--ipc", "host"] == answer["engines"][0]["build"]["args"][-2:]
