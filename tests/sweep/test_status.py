"""What `tokenpeak status` says of a node, from the node's own answer and through the command."""

import json
from dataclasses import replace

import pytest
from driven_home import MODEL, Home

from tokenpeak.cli.nodes import problems, sentences
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.node.protocol.parts import Production, RestoreOutcome

PRODUCTION = Production(
    manager="systemd", unit="prod.service", running=True, url="http://n:8000", model="llama", enabled=True
)
STOPPED = replace(PRODUCTION, running=False, model=None)
TRIAL = StatusAnswer(
    production=STOPPED,
    armed=True,
    guard_alive=True,
    holder="sweep x from tuner",
    trial_id="0003-abc",
    phase="engine_start",
    lease_remaining_s=41.6,
)


SILENT = replace(TRIAL, lease_remaining_s=-90.0)
HAS = "Trial 0003-abc of sweep x from tuner has the node (now: engine start)."
RETURNING = (
    f"Production (systemd prod.service) is stopped. {HAS} The controller is silent; the guard is giving production "
    "back."
)
FREE = "Production (systemd prod.service) serves llama. No trial has the node."
CASES = {
    "down": (
        StatusAnswer(production=STOPPED),
        "Production (systemd prod.service) does not run. No trial has the node.",
        "",
    ),
    "trial": (
        TRIAL,
        f"Production (systemd prod.service) is stopped. {HAS} The guard gives production back if the controller stays "
        "silent for 42 s more.",
        "",
    ),
    "not back": (
        replace(
            SILENT,
            guard_alive=False,
            last_restoration=RestoreOutcome(trial_id="0003-abc", was_running=True, restored=False, message="Refused."),
        ),
        RETURNING,
        "A trial has the node and no guard watches: tokenpeak restore gives it back. "
        "Production is not back: Refused. The guard keeps trying.",
    ),
    "held": (
        StatusAnswer(production=PRODUCTION, held_since_unix_s=0.0),
        f"{FREE} It is held for production since 1970-01-01 00:00:00 UTC, by a restore: no trial begins there until "
        "`tokenpeak restore --release --inventory v100`.",
        "",
    ),
    "garbled": (
        StatusAnswer(production=replace(PRODUCTION, running=None), unusable=("armed makes no sense",)),
        "Production (systemd prod.service) is not known to run or not. Whether a trial has the node is not known.",
        "",
    ),
    "misnamed": (
        StatusAnswer(problem="systemd has no unit 'pord'.", holder="sweep x from tuner"),
        "How production stands is not known. Between two trials of sweep x from tuner.",
        "systemd has no unit 'pord'.",
    ),
}


@pytest.mark.parametrize(("answer", "said", "wrong"), CASES.values(), ids=CASES)
def test_what_a_node_is_said_to_do(answer: StatusAnswer, said: str, wrong: str) -> None:
    """Sentences for whoever was just woken up; what asks for somebody's hand is a problem."""
    assert (said, wrong) == (" ".join(sentences(answer, "v100")), " ".join(problems(answer)))


@pytest.mark.e2e
def test_status_of_a_node_that_answers(home: Home) -> None:
    """The command says what a node serves, for people and for machines; a node that is out of reach is a problem."""
    probed = home.run("probe", "--inventory", "lone")
    assert 0 == probed.returncode, probed.stdout

    text = home.run("status", "--inventory", "lone")
    mixed = home.run("status", "--inventory", "mixed")
    machine = home.run("status", "--inventory", "lone", "--format", "json")

    assert (0, f"one: Production (command) serves {MODEL}. No trial has the node.\n") == (text.returncode, text.stdout)
    assert 1 == mixed.returncode
    assert f"serves {MODEL}" in mixed.stdout
    assert "PROBLEM gone: " in mixed.stdout
    assert "tokenpeak restore --inventory mixed" in mixed.stdout
    assert "python3 -I tokenpeak-node.pyz restore --state ." in mixed.stdout
    assert 0 == machine.returncode, machine.stdout
    assert MODEL == json.loads(machine.stdout)["nodes"]["one"]["production"]["model"]
