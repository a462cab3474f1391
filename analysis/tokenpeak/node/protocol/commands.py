"""Commands of the node script, by name, with what each answers."""

from __future__ import annotations

from tokenpeak.node.protocol.answers import (
    FinishAnswer,
    GuardAnswer,
    InstallAnswer,
    LaunchAnswer,
    LeaseAnswer,
    NodeAnswer,
    ProbeAnswer,
    ProduceAnswer,
    PutAnswer,
    RestoreAnswer,
    StatusAnswer,
    TelemetryAnswer,
    UninstallAnswer,
)
from tokenpeak.node.protocol.apply import ChangeAnswer, ConfirmAnswer, DescribeAnswer, ObserveAnswer

ANSWERS: dict[str, type[NodeAnswer]] = {
    "put": PutAnswer,
    "install": InstallAnswer,
    "probe": ProbeAnswer,
    "launch": LaunchAnswer,
    "finish": FinishAnswer,
    "restore": RestoreAnswer,
    "status": StatusAnswer,
    "lease": LeaseAnswer,
    "guard": GuardAnswer,
    "telemetry": TelemetryAnswer,
    "produce": ProduceAnswer,
    "uninstall": UninstallAnswer,
    "describe": DescribeAnswer,
    "observe": ObserveAnswer,
    "change": ChangeAnswer,
    "confirm": ConfirmAnswer,
}
"""By the command that answers."""
