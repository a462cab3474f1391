"""Commands of the node script: the request and the answer of each, and who may run it besides root."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpeak.node.protocol import answers, requests


@dataclass(frozen=True)
class NodeCommand:
    """A word that the node script takes."""

    answer: type[answers.NodeAnswer]
    request: type[requests.NodeRequest] | None = None
    may_lack_request: bool = False
    """Root may run it without one."""
    is_for_trials: bool = False
    """Root's command of trials takes it."""
    is_for_applies: bool = False
    """Root's command of applies takes it."""
    needs_declaration: bool = True
    """It needs the node's declaration to be readable. What gives the node back needs the record alone, and must not
    fail for what somebody did to another file; `put` replaces that file."""


COMMANDS: dict[str, NodeCommand] = {
    "put": NodeCommand(answers.PutAnswer, requests.PutRequest, needs_declaration=False),
    "install": NodeCommand(answers.InstallAnswer),
    "probe": NodeCommand(answers.ProbeAnswer, is_for_trials=True, is_for_applies=True),
    "launch": NodeCommand(answers.LaunchAnswer, requests.LaunchRequest, is_for_trials=True),
    "finish": NodeCommand(answers.FinishAnswer, requests.FinishRequest, is_for_trials=True),
    "restore": NodeCommand(
        answers.RestoreAnswer,
        requests.RestoreRequest,
        may_lack_request=True,
        is_for_trials=True,
        is_for_applies=True,
        needs_declaration=False,
    ),
    "status": NodeCommand(answers.StatusAnswer, is_for_trials=True, is_for_applies=True),
    "lease": NodeCommand(answers.LeaseAnswer, is_for_trials=True, is_for_applies=True, needs_declaration=False),
    "guard": NodeCommand(answers.GuardAnswer, needs_declaration=False),
    "telemetry": NodeCommand(answers.TelemetryAnswer, needs_declaration=False),
    "produce": NodeCommand(answers.ProduceAnswer),
    "uninstall": NodeCommand(answers.UninstallAnswer, requests.UninstallRequest, may_lack_request=True),
    "describe": NodeCommand(answers.DescribeAnswer, is_for_applies=True),
    "observe": NodeCommand(answers.ObserveAnswer, requests.ObserveRequest, is_for_applies=True),
    "change": NodeCommand(answers.ChangeAnswer, requests.ChangeRequest, is_for_applies=True),
    "confirm": NodeCommand(answers.ConfirmAnswer, requests.ConfirmRequest, is_for_applies=True),
}
NOTIFY = "notify"
"""One more word, for which the script sends a notification and answers nothing."""
