"""Production as a systemd unit, the system's or a user's."""

from __future__ import annotations

import os
from typing import Mapping

from tokenpeak.node import process
from tokenpeak.node.error import ScriptError
from tokenpeak.node.identity import IsMember, in_control_group
from tokenpeak.node.login import as_user
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json


def parse_show(raw: str) -> dict[str, str]:
    """`systemctl show` as a mapping; values may hold `=`."""
    return dict(line.split("=", 1) for line in raw.splitlines() if "=" in line)


LOADED = ("loaded", "masked")
"""Load states of a unit that systemd can stop."""
_STOPPED_WITH_IT = "RequiredBy,BoundBy,ConsistsOf,RequisiteOf"
"""Units to which systemd hands a stop on, and no start."""


def loss(unit: str, shown: Mapping[str, str]) -> str | None:
    """Why a unit would be lost by stopping it or by a boot, and what to do; None when it would not.

    A generated unit (a Quadlet, say) is made anew at each boot from a file that stays.
    """
    fragment = shown.get("FragmentPath", "")
    if shown.get("Transient") == "yes" or fragment.startswith("/run/systemd/transient/"):
        return (
            f"The unit {shown_value(unit)} is transient (made by systemd-run): stopping would delete it. "
            f"Put it into a unit file, /etc/systemd/system/{unit}, and start that."
        )
    if shown.get("LoadState") == "masked" or shown.get("UnitFileState") in ("masked", "masked-runtime"):
        return (
            f"The unit {shown_value(unit)} is masked: once stopped it could not be started again. "
            f"Run `systemctl unmask {unit}`, or correct tokenpeak_production.unit."
        )
    if not fragment and not shown.get("SourcePath"):
        return (
            f"The unit {shown_value(unit)} has no unit file any more: once stopped it could not be started again. "
            f"Put it back, /etc/systemd/system/{unit}, and run `systemctl daemon-reload`."
        )
    is_generated = shown.get("UnitFileState") == "generated" or "/systemd/generator" in fragment
    if fragment.startswith("/run/") and not is_generated:
        return (
            f"The unit {shown_value(unit)} lies in {fragment}, which a boot removes: production would not "
            "come back after one. "
            f"Move it to /etc/systemd/system and run `systemctl daemon-reload`."
        )
    return None


def _is_running(shown: Mapping[str, str]) -> bool:
    return shown.get("ActiveState") in ("active", "activating", "reloading")


class SystemdManager(Manager):
    """declared: unit, and user for a unit of `systemctl --user`."""

    def systemctl(self, *words: str) -> list[str]:
        """The command line of these words, of the system's systemd or the user's."""
        user = self.declared.get("user")
        scope = ["--user"] if user else []
        return as_user(user, ["systemctl", *scope, *words], "tokenpeak_production.user")

    def _show(self) -> dict[str, str]:
        names = (
            "LoadState,ActiveState,SubState,UnitFileState,FragmentPath,SourcePath,DropInPaths,Transient,InvocationID"
        )
        unit = str(self.needed("unit"))
        shown = parse_show(self.ask(self.systemctl("show", "--property", names, "--", unit)).out)
        if shown.get("LoadState") not in LOADED:
            raise ScriptError(
                "production",
                f"systemd has no unit {shown_value(unit)} ({shown.get('LoadState')}): correct "
                "tokenpeak_production.unit.",
            )
        return shown

    def definition(self) -> Json:
        """The unit's state and files, whole, and which running units stop when it does.

        Raises ScriptError for a unit that could not be started again, or that this user may not stop.
        """
        shown = self._show()
        if os.geteuid() != 0 and not self.declared.get("user"):
            raise ScriptError(
                "production",
                f"{shown_value(self.needed('unit'))} is a unit of the system, which root alone may stop and "
                "start: let an "
                "administrator install TokenPeak (tokenpeak_guard_command), or leave this node out.",
            )
        if problem := loss(str(self.needed("unit")), shown):
            raise ScriptError("production", problem)
        text = process.run(self.systemctl("cat", "--", str(self.needed("unit")))).out
        return {"state": shown, "files": text, "dependents": self._dependents(str(self.needed("unit")))}

    def _dependents(self, unit: str) -> list[str]:
        """The active units that systemd stops with `unit`, such as a proxy in front of it, and those that follow them.

        Targets are left out: to start one is to start all that it wants.
        """
        found: list[str] = []
        left = [unit]
        while left:
            shown = parse_show(self.ask(self.systemctl("show", "--property", _STOPPED_WITH_IT, "--", left.pop())).out)
            for name in {name for names in shown.values() for name in names.split()} - {unit, *found}:
                active = process.run(self.systemctl("is-active", "--quiet", "--", name)).status == 0
                if active and not name.endswith(".target"):
                    found.append(name)
                    left.append(name)
        return sorted(found)

    def members(self) -> IsMember:
        """What is in the control group of the unit, or of one that stops with it, such as a proxy in front of it."""
        unit = str(self.needed("unit"))
        groups = []
        for name in (unit, *self._dependents(unit)):
            shown = parse_show(self.ask(self.systemctl("show", "--property", "ControlGroup", "--", name)).out)
            groups.append(in_control_group(shown.get("ControlGroup", "")))
        return lambda pid: any(is_member(pid) for is_member in groups)

    def is_running(self) -> bool:
        """Whether it is active or on its way there."""
        return _is_running(self._show())

    def last_start(self) -> str | None:
        """The unit's invocation; None of a unit that was never started, or ended and was forgotten since."""
        return self._show().get("InvocationID") or None

    def was_started(self, since: str | None) -> bool:
        """Whether it runs, or has had another invocation: one that could not stay up is seen afterwards too."""
        shown = self._show()
        return _is_running(shown) or shown.get("InvocationID", "") not in ("", since)

    def is_ending(self) -> bool:
        """Whether it is on its way down."""
        return self._show().get("ActiveState") == "deactivating"

    def is_enabled(self) -> bool | None:
        """Whether systemd starts it at boot."""
        return self._show().get("UnitFileState") in ("enabled", "enabled-runtime")

    def stop(self) -> None:
        """`systemctl stop`, which waits for the unit's end."""
        try:
            self.do(self.systemctl("stop", "--", str(self.needed("unit"))), STOP_TIMEOUT_S)
        except ScriptError as error:
            raise ScriptError(error.code, f"{error.text} The unit: {self.why_it_runs_on()}") from error

    def why_it_runs_on(self) -> str:
        """How systemd shows the unit after a stop that failed, and what to do."""
        unit = str(self.needed("unit"))
        names = "ActiveState,SubState,Result,Restart"
        shown = parse_show(process.run(self.systemctl("show", "--property", names, "--", unit)).out)
        said = ", ".join(f"{name}={shown[name]}" for name in names.split(",") if shown.get(name))
        user = "--user " if self.declared.get("user") else ""
        return (
            f"{said or 'systemd says nothing of it'}. See `journalctl {user}-u {unit}` for what its ExecStop did or "
            "what started it again, and mend that; Restart= alone starts nothing after a stop that was asked for."
        )

    def start(self, recorded: Json) -> None:
        """`systemctl start` with what stopped along with it, after forgetting a start limit that it may have hit."""
        unit = str(self.needed("unit"))
        process.run(self.systemctl("reset-failed", "--", unit))
        self.do(self.systemctl("start", "--", unit, *recorded.get("dependents", [])), START_TIMEOUT_S)
