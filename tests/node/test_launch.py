"""Borrowing a node and giving it back, with real processes in place of engine and production."""

import base64
import json
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.engine import trial_key
from tokenpeak.node.machine import clock, process


def models_served(production: dict[str, Any]) -> bytes:
    with urllib.request.urlopen(production["url"] + "/v1/models", timeout=5) as response:
        return bytes(response.read())


def test_whole_trial(node: Node) -> None:
    """Production is stopped while the engine runs, answers again afterwards, and the time in between is returned.

    Each phase says whose time it was, and the sampler's columns are of one length; it ends with the trial.
    """
    production = node.production()
    node.run("produce")

    launched = node.run("launch", node.launch_request())
    during = node.run("status")
    sampler = node.read("telemetry.json")
    samples = node.folder / "telemetry.jsonl"
    assert clock.wait_until(lambda: samples.exists() and bool(samples.read_text()), 60)
    alive = process.is_alive(sampler)
    finished = node.run("finish", node.finish_request())

    assert launched["ready"]
    assert during["production"]["running"] is False
    assert during["armed"]
    assert during["guard_alive"]
    assert "sweep-1" == during["holder"]
    restoration = finished["restoration"]
    assert restoration["restored"]
    assert restoration["was_running"]
    assert "prod" == restoration["model"]
    assert 0 < restoration["downtime_s"] < 30
    assert b'"prod"' in models_served(production)
    assert node.read("record.json") is None
    assert node.read("engine.json") is None
    assert node.read("lock.json") is None
    assert [
        ("recording", "orchestration"),
        ("arming", "orchestration"),
        ("production_stop", "orchestration"),
        ("memory_wait", "orchestration"),
        ("engine_start", "engine_start"),
        ("engine_stop", "orchestration"),
        ("memory_wait", "orchestration"),
        ("production_start", "production_start"),
    ] == [(phase["name"], phase["kind"]) for phase in launched["phases"] + finished["phases"]]
    telemetry = finished["telemetry"]
    assert (True, False) == (alive, process.is_alive(sampler))
    assert {"memory_used_bytes"} <= set(telemetry["columns"])
    assert {len(telemetry["t_s"])} == {len(column) for column in telemetry["columns"].values()}


@pytest.mark.parametrize(
    ("options", "request_", "phase", "timed_out", "said"),
    [
        (("--die", "CUDA out of memory"), {}, "starting", False, "CUDA out of memory"),
        (("--hang",), {"deadline_s": 1}, "starting", True, ""),
        ((), {"served_model": "another"}, "first_completion", False, ""),
        ((), {"argv": ["/nonexistent/vllm", "serve"]}, "starting", False, "/nonexistent/vllm"),
    ],
)
def test_engine_that_does_not_come_up(
    node: Node, options: tuple[str, ...], request_: dict[str, Any], phase: str, timed_out: bool, said: str
) -> None:
    """A config that fails is an answer with its evidence, and the node is given back as usual.

    Health is not enough: an engine must complete a prompt by the asked model. Nor is a node lost to a command that
    cannot be started.
    """
    node.serve()

    launched = node.run("launch", node.launch_request(*options, **request_))
    finished = node.run("finish", node.finish_request())

    assert launched["ready"] is False
    assert phase == launched["failure_phase"]
    assert timed_out == launched["timed_out"]
    assert said in launched["message"] + launched["log_tail"]
    assert finished["restoration"]["restored"]
    assert ("--die" in options) == (b"CUDA out of memory" in zlib.decompress(base64.b64decode(finished["log"])))


def test_production_that_does_not_answer(node: Node) -> None:
    """Production that runs without answering is a problem and not touched: its return could not be checked."""
    declared = node.production("--hang")
    started = process.start_detached(declared["process"]["argv"], log=node.folder / "production.log")
    node.rewrite("production.json", process.identity(started.pid))

    probed = node.run("probe")
    answer = node.run("launch", node.launch_request())

    assert "production_unwell" == answer["error"]["code"]
    assert answer["error"]["text"] in probed["problems"]
    assert started.poll() is None
    assert (None, None) == (node.read("record.json"), node.read("lock.json"))
    node.stop_production()
    started.wait()


def test_sweep_without_restoring_between(node: Node) -> None:
    """With restore: per_sweep production stays down between trials, and the last one brings it back."""
    node.serve()

    node.run("launch", node.launch_request(trial_id="0000-a"))
    first = node.run("finish", node.finish_request(trial_id="0000-a", restore_production=False))
    between = node.run("status")
    launched = node.run("launch", node.launch_request(trial_id="0001-b"))
    last = node.run("finish", node.finish_request(trial_id="0001-b"))

    assert first["restoration"] is None
    assert between["production"]["running"] is False
    assert between["armed"]
    assert between["guard_alive"]
    assert (True, True) == (launched["ready"], last["restoration"]["restored"])


def test_lock_names_its_holder(node: Node) -> None:
    """Another sweep's error names who has the node and what to do, between trials too; `restore` breaks the lock."""
    node.run("launch", node.launch_request())

    refused = node.run("launch", node.launch_request(holder="sweep-2"))
    node.run("finish", node.finish_request(keep_lock=True))
    between = node.run("launch", node.launch_request(holder="sweep-2"))
    node.run("restore", {"release": True})
    taken = node.run("launch", node.launch_request(holder="sweep-2"))

    assert ("locked", "locked") == (refused["error"]["code"], between["error"]["code"])
    assert "held by sweep-1" in refused["error"]["text"]
    assert "tokenpeak restore" in refused["error"]["text"]
    assert taken["ready"]


def test_sweep_that_never_had_the_node_gives_nothing_back(node: Node) -> None:
    """What a sweep restores at its end is its own: another's trial, and its lock between two trials, stay."""
    node.run("launch", node.launch_request())

    during = node.run("restore", {"holder": "sweep-2"})["restoration"]
    engine = node.read("engine.json")
    node.run("finish", node.finish_request(keep_lock=True))
    between = [node.run("finish", node.finish_request(holder="sweep-2")), node.run("restore", {"holder": "sweep-2"})]
    held = node.read("lock.json")
    own = node.run("restore", {"holder": "sweep-1"})["restoration"]

    assert process.is_alive(engine) is False
    assert engine is not None, "the other sweep's restore ended this trial"
    assert "Trial 0000-abc of sweep-1 has the node; it was not touched." == during["message"]
    assert {"sweep-1 has the node; it was not touched."} == {answer["restoration"]["message"] for answer in between}
    assert held is not None
    assert (True, None) == (own["restored"], node.read("lock.json"))


def test_key_is_derived_and_kept_secret(node: Node) -> None:
    """Both sides derive the trial's key; it is asked for by the engine and appears in no argument and no answer."""
    (node.folder / "secret-0123abcd").write_text("sweep secret\n")
    (node.folder / "secret-0123abcd").chmod(0o600)
    key = trial_key(b"sweep secret\n", "0000-abc", "sweep-1", "ab" * 16)

    request = node.launch_request("--say", key, secret="secret-0123abcd", key_nonce="ab" * 16)
    launched = node.run("launch", request)
    pid = launched["pid"]
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    finished = node.run("finish", node.finish_request())

    assert launched["ready"]
    assert launched["api_key_used"]
    assert f"VLLM_API_KEY={key}" in environment
    assert [key] == [word for word in arguments if key in word], "only this test's own --say"
    assert key not in str(launched)
    assert key not in zlib.decompress(base64.b64decode(finished["log"])).decode()


@pytest.mark.parametrize(
    ("name", "words"), [("secret-00000000", "tokenpeak probe"), ("node.json", "not the name of a secret")]
)
def test_secret_that_is_not_there(node: Node, name: str, words: str) -> None:
    """A secret that the node lacks is an error before anything is stopped."""
    answer = node.run("launch", node.launch_request(secret=name))

    assert words in answer["error"]["text"]
    assert (None, None) == (node.read("record.json"), node.read("lock.json"))


HOSTILE = ["$HOME", "$(id)", "`id`", "a b", "'", '"', ";reboot", "%n", "--", "\\", "é2", "{{ 7 * 7 }}", "-e"]


def test_hostile_values(node: Node) -> None:
    """Arguments and environment reach the engine as they are: no shell, no expansion."""
    request = node.launch_request(
        "--die", "x", "--say=" + HOSTILE[0], env={f"VLLM_H{i}": v for i, v in enumerate(HOSTILE)}
    )
    request["argv"] = [
        request["argv"][0],
        "-c",
        "import os,sys,json; print(json.dumps([sys.argv[1:], [os.environ[f'VLLM_H{i}'] "
        "for i in range(len(sys.argv)-1)]]))",
        *HOSTILE,
    ]
    launched = node.run("launch", request)

    assert [HOSTILE, HOSTILE] == json.loads(launched["log_tail"])


def test_another_server_at_the_engines_address(node: Node) -> None:
    """What already listens where the engine would is not measured in its place; production is not touched for it."""
    declared = node.production()
    node.run("produce")
    request = node.launch_request("--start-s", "1")
    stranger = process.start_detached([*request["argv"][:-2]], log=node.folder / "stranger.log")
    base = f"http://127.0.0.1:{node.declaration['port']}"
    assert clock.wait_until(lambda: serving.served_model(base) == "tiny", 60)

    answer = node.run("launch", request)

    stranger.kill()
    stranger.wait()
    assert "port" == answer["error"]["code"]
    assert f"is in use by {stranger.pid}" in answer["error"]["text"]
    assert b'"prod"' in models_served(declared)
    assert (None, None) == (node.read("record.json"), node.read("lock.json"))
