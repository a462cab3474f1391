"""Apply on a node: production's definition changed, confirmed, put back; real processes, the real zipapp."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from tests.node.conftest import APPLY_HOLDER, STANDIN, Node

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock


@dataclass
class Applied:
    """A node whose production is a process of ours, and the requests of an apply to it."""

    node: Node

    @property
    def url(self) -> str:
        return str(self.node.declaration["production"]["url"])

    def described(self) -> dict[str, Any]:
        return self.node.run("describe")

    def arguments(self) -> list[str]:
        """What the process that answers was started with, by the kernel."""
        port = self.url.rpartition(":")[2]
        out = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        (line,) = [each for each in out.splitlines() if f"--port {port}" in each and "standin.py serve" in each]
        return line.split("serve ")[1].split()

    def answers(self) -> bool:
        return serving.complete(self.url, "prod", timeout_s=2) is None


@pytest.fixture
def applied(node: Node) -> Applied:
    """Production runs."""
    node.production()
    assert node.run("produce")["ready"]
    return Applied(node)


def test_confirmed(applied: Applied) -> None:
    """A confirmed change stays: production answers by the new definition, and nothing has the node any more."""
    before = applied.arguments()

    changed = applied.node.run("change", applied.node.change_request("--say", "new"))
    during = applied.node.run("status")
    confirmed = applied.node.confirm()
    again = applied.node.run("produce")
    found = applied.described()

    assert changed["changed"], changed
    assert during["armed"]
    assert during["guard_alive"]
    assert confirmed["confirmed"]
    assert [*before, "--say", "new"] == applied.arguments()
    assert applied.answers()
    assert not again["changed"], "the inventory's own set-up must not undo it"
    assert (None, None) == (applied.node.read("record.json"), applied.node.read("lock.json"))
    assert (changed["new_sha256"], changed["was_sha256"]) == (found["sha256"], found["applied"]["was_sha256"])
    assert found["sha256"] != changed["was_sha256"]


def test_put_back_when_nobody_confirms(applied: Applied) -> None:
    """A controller that falls silent after the change: the guard puts back exactly what was there."""
    before, sha256 = applied.arguments(), applied.described()["sha256"]

    changed = applied.node.run("change", applied.node.change_request("--say", "new"))
    applied.node.fall_silent()
    assert clock.wait_until(lambda: applied.node.read("record.json") is None, 60)
    late = applied.node.confirm()
    outcome = applied.node.read("outcome.json") or {}

    assert changed["changed"]
    assert before == applied.arguments()
    assert sha256 == applied.described()["sha256"]
    assert applied.answers()
    assert ("guard", "put_back") == (outcome["by"], outcome["definition"])
    assert "No apply a-1 waits here" in late["error"]["text"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--die", "no"], "ended"),
        (["--hang"], "within 2 s"),
        (["--kind", "health"], "gave no completion"),
        (["--no-such-flag"], "ended"),
    ],
)
def test_definition_that_does_not_serve(applied: Applied, words: list[str], said: str) -> None:
    """A new definition that ends, hangs or does not answer is put back by the command itself."""
    before, sha256 = applied.arguments(), applied.described()["sha256"]

    changed = applied.node.run("change", applied.node.change_request(*words, production_ready_s=2))

    assert not changed["changed"]
    assert "verifying" == changed["failed_in"]
    assert said in changed["message"]
    assert changed["restoration"]["restored"], changed["restoration"]
    assert "put_back" == changed["restoration"]["definition"]
    assert (before, sha256) == (applied.arguments(), applied.described()["sha256"])
    assert applied.answers()
    assert (None, None) == (applied.node.read("record.json"), applied.node.read("lock.json"))


def test_definition_that_has_changed_since_it_was_shown(applied: Applied) -> None:
    """A change is made of what was shown, or not at all."""
    request = applied.node.change_request("--say", "new")
    production = applied.node.declaration["production"]
    argv = [*production["process"]["argv"], "--say", "other"]
    applied.node.declare(production={**production, "process": {"argv": argv}})

    refused = applied.node.run("change", request)

    assert "changed since the change was shown" in refused["error"]["text"]
    assert applied.answers()
    assert applied.node.read("record.json") is None


def test_confirmation_of_somebody_else(applied: Applied) -> None:
    """Only the apply that waits is confirmed, and only by its holder."""
    applied.node.run("change", applied.node.change_request("--say", "new"))

    other = applied.node.run("confirm", {"apply_id": "a-2", "holder": APPLY_HOLDER})
    earlier = applied.node.run("confirm", {"apply_id": "a-0", "holder": APPLY_HOLDER})
    stranger = applied.node.run("confirm", {"apply_id": "a-1", "holder": "somebody"})
    restored = applied.node.run("restore", {"holder": APPLY_HOLDER})

    assert "No apply a-2 waits here" in other["error"]["text"]
    assert "No apply a-0 waits here" in earlier["error"]["text"]
    assert "No apply a-1 waits here" in stranger["error"]["text"]
    assert restored["restoration"]["restored"]
    assert "put_back" == restored["restoration"]["definition"]


def test_trial_and_apply_exclude_each_other(applied: Applied) -> None:
    """A node that a trial has is not changed, and one whose change waits is not borrowed."""
    request = applied.node.change_request("--say", "new")
    applied.node.run("launch", applied.node.launch_request())
    while_trial = applied.node.run("change", request)
    applied.node.run("finish", applied.node.finish_request())
    applied.node.run("change", request)
    while_apply = applied.node.run("launch", applied.node.launch_request())
    applied.node.run("restore", {"holder": APPLY_HOLDER})

    assert "held by sweep-1" in while_trial["error"]["text"]
    assert f"held by {APPLY_HOLDER}" in while_apply["error"]["text"]
    assert applied.answers()


def test_confirmed_record_whose_command_died(applied: Applied) -> None:
    """Once the record says confirmed, whoever finds it goes on with the new definition, never with the old one."""
    applied.node.run("change", applied.node.change_request("--say", "new"))
    new = applied.arguments()
    record = applied.node.read("record.json") or {}
    record["apply"]["confirmed"] = True
    applied.node.end_guard()
    applied.node.rewrite("record.json", record)
    applied.node.run("guard")

    found = applied.described()

    assert new == applied.arguments()
    assert "a-1" == found["applied"]["apply_id"]
    assert "confirmed" == (applied.node.read("outcome.json") or {})["definition"]


def test_manager_without_a_definition(node: Node) -> None:
    """Production whose command is not seen is described with the reason why it cannot be changed, and what would do."""
    node.declare(production={"manager": "command", "start": ["true"], "stop": ["true"], "check": ["true"]})
    pair = node.run("describe")["problem"]
    node.declare(production={"manager": "none"})
    none = node.run("describe")["problem"]
    node.production()
    node.declaration["production"]["process"]["argv"] = ["/bin/sh", "-c", f"exec {sys.executable} {STANDIN}"]
    node.declare()
    hidden = node.run("describe")["problem"]

    assert "tokenpeak_production.command_file" in pair
    assert "manager none" in none
    assert "let its definition run `vllm serve MODEL" in hidden


def test_secrets_are_hidden_and_kept(node: Node) -> None:
    """A key in the definition is in no answer, and is the new definition's all the same."""
    production = node.production("--say", "x")
    production["process"]["argv"] += ["--api-key", "s3cret-value", "--say", "y"]
    node.declare(production=production)
    raw, _ = node.start("describe").communicate(timeout=60)
    found = json.loads(raw)

    assert "s3cret-value" not in raw
    assert "[secret]" == found["words"][found["words"].index("--api-key") + 1]
