"""How each fault of the catalogue is struck, and lifted: by its first word, on a stage with a sweep under way."""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.catalogue import HOST_ROLES
from tests.chaos.observation import Controller as Seen
from tests.chaos.observation import Struck
from tests.chaos.stage import Stage, descendants, seen
from tests.faults.bench import Controller
from tests.rig.conftest import STATE

from tokenpeak.node.machine import clock

FIND_S = 4.0
"""For how long a process of a role is waited for."""
FILLER = "/root/filler"


@dataclass
class Hands:
    """Strikes the faults of one run at the sweep of `controller`; `others` are the controllers that it starts."""

    stage: Stage
    controller: Controller
    others: list[tuple[Controller, str, list[str], float]] = field(default_factory=list)
    _lifts: dict[str, Callable[[], None]] = field(default_factory=dict)

    def strike(self, fault: Struck) -> str | None:
        """Do it now; why it could not be done, if so."""
        kind, _, rest = fault.name.partition(":")
        method: Callable[[Struck, str], str | None] = getattr(self, f"_{kind}")
        return method(fault, rest)

    def lift(self, fault: Struck) -> None:
        """Undo what lasts; nothing where the fault was a single blow."""
        lift = self._lifts.pop(fault.name, None)
        if lift is not None:
            lift()
            fault.lifted_s = time.time()

    def let_go(self) -> None:
        """End what this run has started and not ended, and lift what still lasts."""
        for lift in list(self._lifts.values()):
            lift()
        self._lifts.clear()
        for controller in [self.controller, *(other for other, *_ in self.others)]:
            controller.end()

    def seen(self) -> list[Seen]:
        """The controllers that faults started, ended by now or killed."""
        found = []
        for controller, who, arguments, began_s in self.others:
            with contextlib.suppress(AssertionError):
                controller.wait(60)
            controller.end()
            found.append(seen(controller, who, arguments, began_s))
        return found

    def _pids(self, role: str) -> list[int]:
        if role in HOST_ROLES:
            return self.stage.pids_of_controller(self.controller, role)
        return self.stage.pids_of_node(role)

    def _signal(self, role: str, number: signal.Signals) -> list[int]:
        """Send it to the role's first process, as soon as there is one; to all of the client's."""
        deadline = time.monotonic() + FIND_S
        while time.monotonic() < deadline:
            found = self._pids(role)
            sent = []
            for pid in found if role == "client" else found[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    sent.append(pid)
            if sent:
                return sent
            time.sleep(0.02)
        return []

    def _kill(self, _: Struck, role: str) -> str | None:
        return None if self._signal(role, signal.SIGKILL) else f"no process of {role}"

    def _stop(self, fault: Struck, role: str) -> str | None:
        pids = self._signal(role, signal.SIGSTOP)
        if not pids:
            return f"no process of {role}"

        def go_on() -> None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        self._lifts[fault.name] = go_on
        return None

    def _suspend(self, fault: Struck, _: str) -> str | None:
        """The whole controller: itself and everything that it has started, as a laptop's lid does."""
        top = self.controller.process.pid
        pids = [top, *descendants(top)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

        def wake() -> None:
            for pid in reversed(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        self._lifts[fault.name] = wake
        return None

    def _production(self, _: Struck, how: str) -> str | None:
        self.stage.node.sh("systemctl", "restart" if how == "restarted" else "start", "--no-block", "prod.service")
        return None

    def _file(self, _: Struck, rest: str) -> str | None:
        name, _, how = rest.partition(":")
        path = f"{STATE}/{name}"
        commands = {
            "truncate": f": > {path}",
            "halve": f"truncate -s $(( $(stat -c %s {path}) / 2 )) {path}",
            "garble": f"head -c 64 /dev/urandom > {path}",
            "delete": f"rm {path}",
        }
        done = self.stage.node.sh("sh", "-c", f"test -e {path} && {{ {commands[how]}; }} && echo done")
        return None if "done" in done else f"there was no {name}"

    def _folder(self, fault: Struck, _: str) -> str | None:
        sh = self.stage.node.sh
        sh("mount", "--bind", STATE, STATE)
        sh("mount", "-o", "remount,bind,ro", STATE)
        self._lifts[fault.name] = lambda: _ignore(sh("umount", "-l", STATE))
        return None

    def _disk(self, fault: Struck, _: str) -> str | None:
        sh = self.stage.node.sh
        sh("sh", "-c", f"fallocate -l $(df --output=avail -B1 /root | tail -1) {FILLER}; cat /dev/zero > {FILLER}-rest")
        self._lifts[fault.name] = lambda: _ignore(sh("sh", "-c", f"rm -f {FILLER}*"))
        return None

    def _cable(self, fault: Struck, how: str) -> str | None:
        node = self.stage.node
        if how != "flap":
            node.testnode("cut")
            self._lifts[fault.name] = lambda: _ignore(node.testnode("heal"))
            return None
        over = threading.Event()

        def flap() -> None:
            while not over.is_set():
                node.testnode("cut")
                over.wait(1.5)
                node.testnode("heal")
                over.wait(1.5)

        flapping = threading.Thread(target=flap, daemon=True)
        flapping.start()

        def heal() -> None:
            over.set()
            flapping.join(10)
            node.testnode("heal")

        self._lifts[fault.name] = heal
        return None

    def _operator(self, fault: Struck, how: str) -> str | None:
        if how in ("interrupt", "hang-up"):
            self.controller.process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGHUP)
        elif how == "restore":
            self._begin(self.stage.bench.start, "restore", ["restore", "--inventory", "rig", "--release"])
        else:
            second = self.stage.new_home()
            second.root.mkdir(parents=True)
            second._write_home()
            arguments = ["sweep", "--inventory", "rig", "--sweep", "one", "--no-report"]
            self._begin(second.start, "second", arguments)
            self.second_results = second.root / "results"
        return None

    second_results: Path | None = None

    def _begin(self, start: Callable[..., Controller], who: str, arguments: list[str]) -> None:
        began_s = time.time()
        self.others.append((start(*arguments), who, arguments, began_s))

    def _results(self, _: Struck, __: str) -> str | None:
        results = self.stage.bench.root / "results"
        if not list(results.glob("*/sweep.json")):
            return "there were no results yet"
        shutil.rmtree(results)
        return None


def play(fault: Struck, hands: Hands, phases: dict[str, Callable[..., bool]], over: threading.Event) -> None:
    """Wait for the fault's phase, strike after its delay, and lift it when it has lasted as long as it should."""
    reached = phases[fault.phase]
    while not reached(hands.stage.bench, hands.controller):
        if over.is_set() or hands.controller.process.poll() is not None:
            fault.note = "its phase never came"
            return
        time.sleep(0.005)
    time.sleep(fault.delay_s)
    fault.struck_s = time.time()
    fault.note = hands.strike(fault) or ""
    if fault.note:
        fault.struck_s = None
        return
    if fault.hold_s is not None:
        clock.wait_until(over.is_set, fault.hold_s, poll_s=0.05)
        hands.lift(fault)


def _ignore(_: object) -> None:
    """A lift answers nothing."""
