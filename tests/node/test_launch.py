"""Borrowing a node and giving it back, with real processes in place of engine and production."""

import base64
import json
import os
import signal
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.engine import trial_key
from tokenpeak.node.machine import clock, process, process_files
from tokenpeak.node.protocol.answers import FinishAnswer, parse


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
        pytest.param(("--start-s", "60"), {"deadline_s": 1}, "starting", True, "", marks=pytest.mark.e2e),
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


def test_stubborn_engine_with_a_worker(node: Node) -> None:
    """An engine that ignores SIGTERM is ended with its worker: nothing keeps memory."""
    launched = node.run("launch", node.launch_request("--worker", "--ignore-sigterm"))
    worker = int(launched["log_tail"].split("worker ")[1].split()[0])
    assert process_files.stat_of(worker)

    finished = node.run("finish", node.finish_request(engine_stop_s=0.3))

    assert finished["engine_stopped"]
    assert process_files.stat_of(worker) is None


def test_production_that_was_down(node: Node) -> None:
    """Production that was down stays down, and is said to have been."""
    node.production()

    launched = node.run("launch", node.launch_request())
    finished = node.run("finish", node.finish_request())

    assert launched["production"]["running"] is False
    restoration = parse(FinishAnswer, finished).restoration
    assert restoration is not None
    assert restoration.restored
    assert restoration.was_running is False
    assert restoration.downtime_s is None
    assert "Production was down before and was left down." == restoration.message
    assert node.run("status")["production"]["running"] is False


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
    assert "make restore" in refused["error"]["text"]
    assert taken["ready"]


def test_lease_that_cannot_be_written_holds_no_lock(node: Node) -> None:
    """A launch whose lease cannot be written leaves production up and the node free for others."""
    production = node.production()
    node.run("produce")
    (node.folder / "lease.json" / "in the way").mkdir(parents=True)

    answer = node.run("launch", node.launch_request())

    assert "error" in answer
    assert b'"prod"' in models_served(production)
    assert node.read("lock.json") is None


@pytest.mark.parametrize("other", [{"trial_id": "9999-z"}, {"holder": "sweep-2"}])
def test_finish_of_another_trial(node: Node, other: dict[str, Any]) -> None:
    """Finishing a trial that does not have the node leaves the one that has it alone, also one of an equal id."""
    node.run("launch", node.launch_request())

    finished = node.run("finish", node.finish_request(**other))

    assert "Trial 0000-abc of sweep-1 has the node; it was not touched." == finished["restoration"]["message"]
    assert (True, None) == (finished["restoration"]["restored"], finished["restoration"]["downtime_s"])
    assert process.is_alive(node.read("engine.json"))


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


def test_earlier_sweeps_trial_of_the_same_id(node: Node) -> None:
    """What became of another sweep's trial is not returned for this one, though sweeps number their trials alike."""
    node.serve()
    node.run("launch", node.launch_request())
    node.lapse()

    never_launched = node.run("finish", node.finish_request(holder="sweep-2"))
    node.run("launch", node.launch_request(holder="sweep-2"))
    launched = node.run("finish", node.finish_request(holder="sweep-2", restore_production=False))

    assert ("No trial has this node.", "another") == (
        never_launched["restoration"]["message"],
        never_launched["given_back_by"],
    )
    assert "" == never_launched["log"]
    assert (True, None) == (launched["engine_ran"], launched["given_back_by"])


def test_finish_returns_whether_the_engine_had_outlived_the_load(node: Node) -> None:
    """An engine that was still there was ended by the finish; one that died before is said to have."""
    node.run("launch", node.launch_request())
    outlived = node.run("finish", node.finish_request())
    died = node.run("launch", node.launch_request())
    os.kill(died["pid"], signal.SIGKILL)
    assert clock.wait_until(lambda: process_files.stat_of(died["pid"]) is None, 60)
    finished = node.run("finish", node.finish_request())

    assert (True, False) == (outlived["engine_ran"], finished["engine_ran"])
    assert finished["restoration"]["restored"]


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
    ("name", "words"), [("secret-00000000", "make probe"), ("node.json", "not the name of a secret")]
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


def test_environment_file_that_is_not_there(node: Node) -> None:
    """What the engine cannot be started without is read before production is stopped."""
    production = node.production()
    node.declare(engine={**node.declaration["engine"], "env_file": "/nonexistent/engine.env"})
    node.run("produce")

    answer = node.run("launch", node.launch_request())

    assert "/nonexistent/engine.env" in answer["error"]["text"]
    assert b'"prod"' in models_served(production)
    assert (None, None) == (node.read("record.json"), node.read("lock.json"))


def test_own_production_that_is_declared_anew(node: Node) -> None:
    """Production that the set-up started is started again when it is declared otherwise."""
    before = node.production()
    node.run("produce")
    declared = node.production()

    changes = [node.run("produce")["changed"] for _ in range(2)]

    served = [serving.served_model(production["url"]) for production in (before, declared)]
    assert ([True, False], [None, "prod"]) == (changes, served)


def test_another_server_at_productions_address(node: Node) -> None:
    """Something else that answers at production's address is not production, and is named."""
    declared = node.production()
    stranger = process.start_detached(declared["process"]["argv"], log=node.folder / "stranger.log")
    assert clock.wait_until(lambda: serving.served_model(declared["url"]) == "prod", 60)

    answer = node.run("produce")

    stranger.kill()
    stranger.wait()
    assert f"{declared['url']} answers ({stranger.pid} python" in answer["error"]["text"]
