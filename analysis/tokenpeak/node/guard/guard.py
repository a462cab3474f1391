"""Guard (watchdog): the node gives itself back when its controller falls silent, or the machine was booted.

With systemd a timer and a boot unit (installed once, see `install`) start the watch; without, a detached process
watches, which survives everything but a boot.
"""

from __future__ import annotations

import os
import re
import sys
import syslog
import time
from pathlib import Path
from typing import Callable

from tokenpeak.node.engine.engine import LOG as ENGINE_LOG
from tokenpeak.node.engine.engine import has_systemd
from tokenpeak.node.guard import lease, mutex, overlap
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.guard_report import GuardReport
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, process, root_environment, root_files, trust
from tokenpeak.node.machine.error import ScriptError, refusal
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_output
from tokenpeak.node.production.restore import restore
from tokenpeak.node.protocol.answers import GuardAnswer, InstallAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome

FILE = "guard.json"
LOG = "guard.log"
LOOK_S = 1.0
"""A deadline is noticed within this; reading two small files costs nothing."""
_ARM_TRIES = 4
_ARM_LIMIT_S = 60.0
"""A guard that lives is waited for: a machine whose cores are all busy takes tens of seconds to start a process."""
_ARM_AGAIN_LIMIT_S = 10.0
"""Within a heartbeat, which its sender waits for."""
_COMES_BACK_WITHIN_S = 5.0
_ARM_POLL_S = 0.1
UNITS = Path("/etc/systemd/system")


def unit_name(state: State) -> str:
    """The guard's units, without suffix; state folders of one machine don't share them."""
    return f"tokenpeak-guard-{state.digest}"


def unit_files(state: State, argv: list[str]) -> dict[str, str]:
    """The units by file name.

    The condition costs nothing while no trial has the node; the timer brings a watch that died, even by SIGKILL, back
    within seconds; the service is wanted at boot.
    """
    name = unit_name(state)
    record = re.sub(r"([\\*?\[])", r"\\\1", str(state.path("record"))).replace("%", "%%")
    words = [_quoted(word) for word in [*argv, "guard", "--state", str(state.folder)]]
    # systemd looks for variables in arguments alone.
    environment = "\n".join(f"Environment={_quoted(f'{key}={value}')}" for key, value in root_environment.FIXED.items())
    command = " ".join([words[0], *(word.replace("$", "$$") for word in words[1:])])
    return {
        f"{name}.service": f"""[Unit]
Description=TokenPeak gives this node back to production when its controller falls silent
ConditionPathExistsGlob={record}*.json
After=network.target
StartLimitIntervalSec=0

[Service]
Type=exec
{environment}
ExecStart={command}
Restart=on-failure
RestartSec=2
KillMode=process
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
""",
        f"{name}.timer": """[Unit]
Description=TokenPeak's guard is there whenever a trial has the node

[Timer]
OnBootSec=15
OnUnitInactiveSec=10
AccuracySec=1

[Install]
WantedBy=timers.target
""",
    }


def _quoted(word: str) -> str:
    """A word of a unit's command line that systemd takes as it is."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def install(state: State) -> InstallAnswer:
    """Put the units in place where systemd runs the machine; doing it again changes nothing."""
    if not has_systemd():
        return InstallAnswer(guard="watchdog", changed=False)
    if masked := why_masked(state):
        raise ScriptError("guard", masked)
    changed = False
    bundle = str(state.path("tokenpeak-node.pyz"))
    for file_name, text in unit_files(state, [sys.executable, *process.PYTHON_OPTIONS, bundle]).items():
        target = UNITS / file_name
        if not target.is_file() or target.read_text() != text:
            root_files.put(target, text.encode(), 0o644)
            changed = True
    name = unit_name(state)
    if changed:
        _systemctl("daemon-reload")
    if process.run(["systemctl", "is-enabled", "--quiet", f"{name}.service", f"{name}.timer"]).status != 0:
        _systemctl("enable", f"{name}.service", f"{name}.timer")
        changed = True
    _systemctl("start", f"{name}.timer")
    return InstallAnswer(guard="systemd", changed=changed)


def _systemctl(*words: str) -> None:
    ran = process.run(["systemctl", *words], timeout_s=60)
    if ran.status != 0:
        raise ScriptError("guard", f"{shown_command(['systemctl', *words])} failed: {shown_output(ran.err)}")


def arm(state: State, nonce: str, limit_s: float = _ARM_LIMIT_S) -> str:
    """See that a watch for the record with this nonce runs before anything else happens; which kind it is.

    Raises ScriptError as soon as the guard has ended without a word, and when it has said none within `limit_s`.
    """
    unit = f"{unit_name(state)}.service"
    deadline = clock.boot_s() + limit_s
    kind = "systemd" if _is_installed(state) else "watchdog"
    if _watches(state, nonce):
        return kind
    if kind == "watchdog":
        guard = process.start_again(["guard", "--state", str(state.folder)], state.path(LOG))
        clock.wait_until(lambda: _watches(state, nonce) or guard.poll() is not None, limit_s, _ARM_POLL_S)
        if not _watches(state, nonce):
            output = shown_output(trust.read_end(state.path(LOG), 1000).decode(errors="replace"))
            raise ScriptError("guard", f"The guard did not come up, so production is not left to it. It said: {output}")
        return kind
    # A unit that is just ending is no watch, though systemd calls it active: production is touched only when the
    # guard itself has said that it watches this record.
    output = ""
    for _ in range(_ARM_TRIES):
        output = shown_output(process.run(["systemctl", "start", unit], timeout_s=60).err)
        left_s = deadline - clock.boot_s()
        clock.wait_until(lambda: _watches(state, nonce) or _has_ended(unit), left_s, _ARM_POLL_S)
        if _watches(state, nonce):
            return kind
    why = why_masked(state) or f"See its journal: `journalctl -u {unit}`. {output}".strip()
    raise ScriptError("guard", f"The guard {unit} does not come up, so production is not left to it. {why}")


def is_armed(state: State, nonce: str) -> bool:
    """Whether somebody watches the record with this nonce, as far as can be seen from outside."""
    if _watches(state, nonce):
        return True
    # On a full disk the guard cannot say that it watches.
    unit = f"{unit_name(state)}.service"
    return _is_installed(state) and process.run(["systemctl", "is-active", "--quiet", unit]).status == 0


def keep_armed(state: State) -> None:
    """See that a guard watches the record that is there; raises ScriptError when none does and none can be started.

    A guard that dies comes back within seconds; one whose units somebody stopped and masked does not.
    """
    record = records.read_if_possible(state)
    if record is None or _is_arming(state, record):
        return
    # Units that were masked or removed bring none back.
    back_s = _COMES_BACK_WITHIN_S if _is_installed(state) else 0.0
    if clock.wait_until(lambda: is_armed(state, record["nonce"]), back_s, 0.2):
        return
    if state.has(records.NAME):
        arm(state, record["nonce"], _ARM_AGAIN_LIMIT_S)


def _is_arming(state: State, record: Json) -> bool:
    """Whether the command that wrote the record may still wait for its guard's first word: production is untouched."""
    if "stopped" in record or (state.read(FILE) or {}).get("nonce") == record["nonce"]:
        return False
    return 0 <= time.time() - float(record.get("armed_at_unix_s", 0)) < _ARM_LIMIT_S


def why_masked(state: State) -> str | None:
    """The remedy where somebody masked the guard's units, so that systemd starts none; None where nobody did."""
    masked = [f"{unit_name(state)}.{kind}" for kind in ("service", "timer")]
    masked = [name for name in masked if has_systemd() and (UNITS / name).is_symlink()]
    if not masked:
        return None
    return (
        f"The guard's units are masked ({', '.join(masked)}), so that systemd starts no guard, nor one after a boot: "
        f"{shown_command(['systemctl', 'unmask', *masked])}, then `tokenpeak install`."
    )


def _is_installed(state: State) -> bool:
    return has_systemd() and (UNITS / f"{unit_name(state)}.service").is_file()


def _has_ended(unit: str) -> bool:
    """Whether systemd neither runs the unit nor is about to start it again."""
    shown = process.run(["systemctl", "show", "--property", "ActiveState", "--value", unit]).out.strip()
    return shown in ("inactive", "failed")


def _watches(state: State, nonce: str) -> bool:
    """Whether a guard that lives has said that it watches the record with this nonce."""
    watching = state.read(FILE)
    return bool(watching and watching.get("nonce") == nonce and process.is_alive(watching))


def is_due(state: State, record: Json) -> str | None:
    """Why the node must be given back now; None when it need not."""
    if (record.get("apply") or {}).get("confirmed"):
        return "its apply was confirmed, and whoever confirmed it is gone"
    if record["boot_id"] != clock.boot_id():
        return "the machine was booted"
    # The record's own first: it lies there twice, and a lease only once.
    deadline_boot_s = record.get("deadline_boot_s")
    if deadline_boot_s is not None and clock.boot_s() > deadline_boot_s:
        return "no confirmation came in time" if "apply" in record else "the trial went on past its deadline"
    if lease.has_lapsed(state):
        return "the controller was silent for longer than its lease"
    if overlap.noted(state, record):
        return "production was started by somebody while the trial had the node"
    return None


def _wait(is_over: Callable[[], bool], timeout_s: float) -> bool:
    return clock.wait_until(is_over, timeout_s, poll_s=0.5)


def watch(state: State, wait: Callable[[Callable[[], bool], float], object] = _wait) -> GuardAnswer:
    """Watch the record that is there, and the one after it, until there is none; restore when due, and keep trying.

    Between two looks it leaves it to `wait` when to return: once the condition is true, or after these seconds.
    """

    def is_gone() -> bool:
        return not state.has(records.NAME)

    nonce: str | None = None
    pause_s = 1.0
    logged = announced = ""
    report = GuardReport(state, _say)
    while not is_gone():
        record = records.read_if_possible(state)
        if record is not None and record["nonce"] != nonce:
            nonce, pause_s = str(record["nonce"]), 1.0
            _say_who_watches(state, nonce)
        why = "its record cannot be read" if record is None else is_due(state, record)
        report.watching(why)
        if why is None:
            pause_s = 1.0
            root_files.bound_log(state.path(ENGINE_LOG))
            wait(is_gone, _look_again_s(state))
            continue
        if announced != why:
            _say(f"giving the node back: {why}")
            announced = why
        outcome = _attempt(state, None if record is None else str(record["nonce"]))
        # The same words are said once: an hour of them would hide the first.
        if outcome.message not in (logged, ""):
            _say(outcome.message, is_alert=not outcome.restored or record is None)
        logged = outcome.message
        report.attempted(record, why, outcome)
        wait(is_gone, pause_s)
        pause_s = min(pause_s * 2, 60.0)
    report.close()
    return GuardAnswer(watched=nonce is not None, message="No trial has the node.")


def _say_who_watches(state: State, nonce: str) -> None:
    try:
        state.write(FILE, {"nonce": nonce, **process.identity(os.getpid())}, durable=False)
    except OSError as error:
        # On a full disk the guard watches all the same; systemd knows that it does.
        _say(f"cannot say who watches: {error}")


def _look_again_s(state: State) -> float:
    left_s = lease.remaining_s(state)
    return LOOK_S if left_s is None else min(LOOK_S, max(0.05, left_s))


def _attempt(state: State, nonce: str | None) -> RestoreOutcome:
    """One restoration, unless somebody did it or renewed the lease while this waited for its turn.

    A command that has the mutex and does not go on is ended before.
    """

    def is_still_due() -> bool:
        record = records.read_if_possible(state)
        return record is None or is_due(state, record) is not None

    try:
        with mutex.exclusive(state, may_end=is_still_due):
            return _restore_in_turn(state, nonce)
    except ScriptError as error:
        return RestoreOutcome(restored=None, message=error.text)


def _restore_in_turn(state: State, nonce: str | None) -> RestoreOutcome:
    """As `_attempt`, with the mutex held."""
    if not state.has(records.NAME):
        return RestoreOutcome(restored=True, message="Somebody else gave the node back.")
    record = records.read_if_possible(state)
    if nonce is not None and record is not None and record["nonce"] != nonce:
        return RestoreOutcome(restored=True, message="Somebody else gave the node back.")
    if record is not None and is_due(state, record) is None:
        return RestoreOutcome(restored=False)
    try:
        outcome = restore(state, Phases(state), by="guard")
    except Exception as error:  # whatever it was, the guard goes on trying
        words = refusal(error) if isinstance(error, OSError) else str(error)
        return RestoreOutcome(restored=None, message=f"The restoration failed: {type(error).__name__}: {words}")
    if outcome.restored:
        lease.release_lock(state)
    return outcome


def _say(text: str, *, is_alert: bool = False) -> None:
    """Into the journal or the guard's log; an alert also into the system's log, for whoever watches that."""
    if is_alert:
        syslog.syslog(syslog.LOG_ALERT, f"tokenpeak: {text}")
    try:
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)
    except OSError:
        # Without systemd its log lies on the disk that may be full, which is no reason to end.
        return
