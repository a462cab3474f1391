"""Failure causes of a trial: what each says of its config, and what to do about it. Declared here and nowhere else.

What a trial records, what the search launches again, what a gate counts and what a user is advised follow from this.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class FailureCause:
    """One word that a trial's failure can have."""

    code: str
    kind: Literal["config", "transient", "outage"]
    """Whose it is: the config's, which would fail again; nobody knows whose, so that another launch shows it; or that
    of the node, the network, the disk or the controller, which is never the config's."""
    advice: str | None
    """What a user does; None where that follows from the engine's own words, which `vllm/errors.py` explains."""
    is_engine: bool = False
    """It lies in config and engine together, so that a gate counts it against the engine."""
    climb: Literal["too_high", "too_low"] | None = None
    """Of a value that is raised step by step: what this failure says of it."""

    @property
    def is_retried(self) -> bool:
        """Whether the config is launched again."""
        return self.kind != "config"

    @property
    def counts(self) -> bool:
        """Whether the launch counts against the config; one that does not is recorded as interrupted."""
        return self.kind != "outage"


_LOG = "Look at the engine's log in the trial."
_AGAIN = "The trial is made again."


def _config(
    code: str,
    advice: str | None = None,
    *,
    is_engine: bool = True,
    climb: Literal["too_high", "too_low"] | None = None,
) -> FailureCause:
    return FailureCause(code=code, kind="config", advice=advice, is_engine=is_engine, climb=climb)


def _transient(code: str, advice: str | None = None) -> FailureCause:
    return FailureCause(code=code, kind="transient", advice=advice)


def _outage(code: str, advice: str = _AGAIN) -> FailureCause:
    return FailureCause(code=code, kind="outage", advice=advice)


FAILURE_CAUSES = {
    cause.code: cause
    for cause in (
        _config("out_of_memory", climb="too_high"),
        _config("kv_cache_too_small", climb="too_low"),
        _config("context_too_long", climb="too_low"),
        _config("tensor_parallel_mismatch"),
        _config("dtype_unsupported"),
        _config("quantization_unsupported"),
        _config("unknown_flag"),
        _config("bad_flag_value"),
        _config("model_missing", is_engine=False),
        _config("model_unsupported"),
        _config("crashed", _LOG, climb="too_high"),
        _config("unknown", _LOG, is_engine=False, climb="too_high"),
        _config("refused", _LOG, is_engine=False),
        _config("wrong_engine", is_engine=False),
        _transient("vram_taken"),
        _transient("port_taken"),
        _transient("hung"),
        _transient("engine_not_started", "See why the node starts no such engine."),
        _transient("stopped", "See who ends processes on the node: an operator, a job, the system's shutdown."),
        _transient("load_failed", _LOG),
        _transient("inventory_task", "See the task files that the inventory names by tokenpeak_tasks."),
        _outage("interrupted"),
        _outage("node_unreachable", f"See whether the node is up and SSH gets there. {_AGAIN}"),
        _outage("network_outage", f"Look at the network between load generator and node. {_AGAIN}"),
        _outage("load_host_lost", f"See whether the load host is up. {_AGAIN}"),
        _outage("production_overlap"),
    )
}
"""Cause → what it says, all that there are."""


def _codes(*, kind: str) -> frozenset[str]:
    return frozenset(code for code, cause in FAILURE_CAUSES.items() if cause.kind == kind)


OUTAGE_CAUSES = _codes(kind="outage")
"""Failures that are no config's: the trial is interrupted, and made again until it was carried out."""
TRANSIENT_CAUSES = _codes(kind="transient") | OUTAGE_CAUSES
"""Failures that say nothing about the config: its next launch may do."""
ENGINE_CAUSES = frozenset(code for code, cause in FAILURE_CAUSES.items() if cause.is_engine)
"""Failures that lie in config and engine; all others may be the machine's."""
UNEXPLAINED_CAUSES = frozenset({"unknown", "refused", "stopped"})
"""What an engine's failure is called where neither its log nor its end says why: whoever knows more is right."""
