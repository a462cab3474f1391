"""A rig node behind HAProxy whose production an apply changes: its definition is read by `cat` and systemd alone."""

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.balancer import Balancer
from tests.faults.bench import LEASE_S, MACHINE, MODEL, SPEC, Bench, Controller

from tokenpeak.node.machine import clock
from tokenpeak.records import ApplyRecord
from tokenpeak.store.archive import Archive

NEW_FLAG = "--max-num-seqs"
NEW_VALUE = 64
"""What distinguishes the config that is applied from production's own definition."""
PROGRAM = "/opt/prod-engine"
CRASH_AT_START = "/run/crash-at-start"
SCRIPT = f"""#!/bin/sh
# Production's engine. By its new definition it ends at its start, where somebody wants that.
case "$*" in
*"{NEW_FLAG} "*) test ! -e {CRASH_AT_START} || exit 1 ;;
esac
exec {MACHINE}/vllm "$@"
"""
STRIKER = """#!/bin/sh
# To processes of the new definition that are older than $2 seconds: $1 is `kill` or `slow`.
# A pause is longer than the delay that the simulated engine catches up with, unseen by its metrics.
ticks=$(getconf CLK_TCK)
while :; do
  now=$(cut -d. -f1 /proc/uptime)
  for pid in $(pgrep -f 'tokenpeak.sim.engine serve .*--port 8000 .*FLAG '); do
    began=$(cut -d')' -f2 "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f21)
    [ -n "$began" ] && [ $((now - began / ticks)) -ge "$2" ] || continue
    case $1 in
    kill) kill -9 "$pid" ;;
    slow) kill -STOP "$pid"; sleep 0.4; kill -CONT "$pid"; sleep 0.1 ;;
    esac
  done
  [ "$1" = slow ] || sleep 0.2
done
"""
APPLY_SPEC: dict[str, Any] = {
    **SPEC,
    "axes": {"max_num_seqs": [NEW_VALUE]},
    "fixed": {"name": "fixed", "flags": {"max_model_len": 4096}},
    "deadlines": {**SPEC["deadlines"], "production_ready_s": 20},
}


def unit(address: str) -> str:
    """Production's unit; it is started again when it crashes, as a production is."""
    return f"""[Unit]
Description=Production
StartLimitIntervalSec=0
[Service]
Environment=TOKENPEAK_SIM_START_S=1.5
ExecStart={PROGRAM} serve {MODEL} --host {address} --port 8000 --max-model-len 4096
ExecStop=/bin/sleep 0.7
KillMode=mixed
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""


@dataclass
class ApplyBench(Bench):
    """A node whose production runs behind `balancer`, and the archive of a sweep on it."""

    gpu: str = "NVIDIA H100 80GB HBM3"
    balancer: Balancer | None = None
    server: str = ""
    bake: dict[str, Any] = field(default_factory=lambda: {"bake_s": 6, "settle_s": 1, "test_load": 4})
    least_up: int = 0
    spec: dict[str, Any] = field(default_factory=lambda: APPLY_SPEC)
    sweep_id: str = ""
    old: str = ""
    new: str = ""

    def unit(self) -> str:
        """Production's unit file."""
        return unit(self.node.address)

    def variables(self) -> dict[str, Any]:
        """Drain by HAProxy, and a short bake."""
        found: dict[str, Any] = {"tokenpeak_bake": self.bake}
        if self.balancer is not None:
            haproxy = {"socket": self.balancer.runtime, "servers": [f"llm/{self.server}"]}
            found["tokenpeak_drain"] = {"haproxy": haproxy, "wait": {"most_s": 20}, "least_up": self.least_up}
        return found

    def make_programs(self) -> None:
        """Put production's engine on the node, and what strikes at it."""
        for path, text in ((PROGRAM, SCRIPT), ("/opt/striker", STRIKER.replace("FLAG", NEW_FLAG))):
            self.node.write(path, text)
            self.node.sh("chmod", "755", path)

    def make_production(self) -> None:
        """Production up, and the inventory written."""
        self.make_programs()
        super().prepare()

    def prepare(self) -> None:
        """Production up, a sweep made, and the definition known as it is and as an apply makes it."""
        self.make_production()
        self.write_spec("one", self.spec)
        made = self.sweep("one")
        assert made.wait(400) == 0, made.said
        self.sweep_id = self.archives()[-1].name
        self.old = self.fingerprint()
        applied = self.apply()
        assert applied.wait(400) == 0, applied.said
        self.new = self.fingerprint()
        assert self.old != self.new
        self.roll_back()

    def apply(self, max_num_seqs: int = NEW_VALUE) -> Controller:
        """Start an apply of a config by name: a sweep as short as this shows none to be ahead."""
        self.node.sh("rm", "-f", "/var/lib/tokenpeak/phase.json")
        return self.start(
            "apply", self.sweep_id, "--config", f"max_num_seqs={max_num_seqs}", "--despite", "simulated", "--yes"
        )

    def roll_back(self) -> None:
        """Undo the last confirmed apply; production has its old definition afterwards."""
        undone = self.start("rollback", "--inventory", "rig", "--node", self.node.name, "--yes")
        assert undone.wait(400) == 0, undone.said
        assert self.old == self.fingerprint(), undone.said

    def fingerprint(self) -> str:
        """A digest of the unit's files, of what systemd would start, and of what runs: all of one definition or not.

        Comments, which name an apply, are left out.
        """
        files = self.node.sh("sh", "-c", "cd /etc/systemd/system && find prod.service* -type f | sort | xargs cat")
        text = "\n".join(line for line in files.splitlines() if not line.startswith("#"))
        listed = self.node.sh("sh", "-c", "cd /etc/systemd/system && find prod.service* | sort")
        shown = self.node.sh("systemctl", "show", "-p", "ExecStart", "prod.service").partition(" ; ignore_errors")[0]
        return hashlib.sha256("\n".join([text, listed, shown, self.serving_arguments()]).encode()).hexdigest()

    def serving_arguments(self) -> str:
        """The arguments of the process that serves, by the kernel."""
        out = self.node.sh("ps", "-ww", "-eo", "args")
        lines = [line for line in out.splitlines() if re.search(r"sim\.engine serve .*--port 8000", line)]
        return lines[0].partition(" serve ")[2] if len(lines) == 1 else f"{len(lines)} processes"

    def is_in_balancer(self) -> bool:
        """Whether clients reach it."""
        return self.balancer is None or self.balancer.is_in(self.server)

    def records(self) -> list[ApplyRecord]:
        """What the controller has recorded of applies."""
        return Archive(self.root / "results" / self.sweep_id).applies()

    def confirmed_on_node(self) -> str | None:
        """The apply that the node has as confirmed, by its file."""
        path = self.on_disk("applied.json")
        return str(json.loads(path.read_text())["apply"]["id"]) if path.exists() else None

    def strike_new(self, kind: str, after_s: int) -> None:
        """Kill or slow down whatever runs by the new definition for longer than this."""
        self.node.sh("systemd-run", "-q", "--unit=striker", "/opt/striker", kind, str(after_s))

    def heal(self) -> None:
        """End what strikes at the new definition."""
        self.node.sh("systemctl", "stop", "striker.service")
        self.node.sh("pkill", "-CONT", "-f", "tokenpeak.sim.engine")
        self.node.sh("rm", "-f", CRASH_AT_START, "/root/filler", "/root/rest")

    def await_steady(self, within_s: float) -> None:
        """Wait until nobody has the node, production answers by one of the two definitions, and clients reach it."""

        def is_steady() -> bool:
            return not self.is_armed() and self.answers() and self.is_in_balancer()

        assert clock.wait_until(is_steady, within_s, poll_s=0.2), (
            f"not steady within {within_s:.0f} s: armed {self.is_armed()}, answers {self.answers()}, in its balancer "
            f"{self.is_in_balancer()}, phase {self.phase()}\n"
            + self.node.sh("journalctl", "-b", "--no-pager", "-n", "80")
        )

    def begin_apply(self, is_reached: Callable[[Bench, Controller], bool]) -> Controller:
        """An apply that has just reached a phase; what went through it unseen is undone, and begun again."""
        for _ in range(5):
            controller = self.apply()
            try:
                if self._await(controller, is_reached):
                    return controller
            except BaseException:
                controller.end()
                raise
            if self.fingerprint() == self.new:
                self.roll_back()
        raise AssertionError("five applies went through the phase unseen")

    def _await(self, controller: Controller, is_reached: Callable[[Bench, Controller], bool]) -> bool:
        deadline = time.monotonic() + 300
        while not is_reached(self, controller):
            if controller.process.poll() is not None:
                controller.wait(10)
                return False
            assert time.monotonic() < deadline, f"The phase never came ({self.phase()}):\n{controller.said}"
            time.sleep(0.004)
        return True


RECOVER_S = LEASE_S + 60.0
"""The lease, the end of requests, memory, production's own stop and start, and a busy machine."""
