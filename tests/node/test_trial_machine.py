"""The node under random events: whenever no trial has it, production is as it was recorded.

Real processes throughout: a small server as production and as engine, the watchdog as guard. Commands run in forked
children, so that they can be killed at any instant.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.free_ports import free_port
from tests.node.conftest import STANDIN

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.finish import finish
from tokenpeak.node.engine.launch import launch
from tokenpeak.node.guard import lease, record
from tokenpeak.node.machine import clock, process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import production
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.production import produce
from tokenpeak.node.production.restore import restore_command
from tokenpeak.node.protocol.requests import FinishRequest, LaunchRequest, RestoreRequest, parse

ENGINES: dict[str, list[str]] = {
    "works": [],
    "outlives its stop": ["--ignore-sigterm", "--worker"],
    "dies at start": ["--die", "no memory"],
    "hangs at start": ["--hang"],
}
PAUSES_S = st.floats(0.0, 1.5)


class Trial(RuleBasedStateMachine):
    """A node, its owner who may stop and start production, and a controller that does anything in any order."""

    @initialize(running=st.booleans())
    def set_up(self, running: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tokenpeak-machine-"))
        self.state = State(self.folder)
        port, self.port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, str(STANDIN), "serve", "prod", "--port", str(port)]
        self.declaration: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "engine": {"command": [sys.executable], "isolation": "process"},
            "production": {"manager": "command", "url": self.url, "process": {"argv": argv, "stop_grace_s": 2}},
        }
        self.running = running
        self.trial = 0
        if running:
            self.carry_out(lambda: produce(self.state, self.declaration, 20))

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        self.carry_out(lambda: restore_command(self.state, RestoreRequest(release=True)))
        self.production_is_as_recorded()
        leader = self.state.read("production.json")
        if leader:
            process.stop_group(leader, 1.0)
        guard = self.state.read("guard.json")
        if guard:
            clock.wait_until(lambda: not process.is_alive(guard), 60)
        shutil.rmtree(self.folder)

    def carry_out(self, command: Callable[[], object], killed_after_s: float | None = None) -> None:
        """Run a command in a child, to its end or until it is killed."""
        child = os.fork()
        if child == 0:
            try:
                command()
            except ScriptError:
                os._exit(3)
            finally:
                os._exit(0)
        if killed_after_s is not None:
            time.sleep(killed_after_s)
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def launch_request(self, engine: str, holder: str) -> dict[str, Any]:
        self.trial += 1
        argv = [sys.executable, str(STANDIN), "serve", "tiny", "--port", str(self.port), *ENGINES[engine]]
        return {
            "trial_id": f"{self.trial:04d}-abc",
            "holder": holder,
            "argv": argv,
            "env": {},
            "served_model": "tiny",
            "deadline_s": 2 if engine == "hangs at start" else 20,
            "lease_s": 600,
            "trial_deadline_s": 600,
            "engine_stop_s": 0.5,
            "production_ready_s": 20,
        }

    def finish_request(self, trial_id: str) -> dict[str, Any]:
        return {"trial_id": trial_id, "holder": "sweep-1", "engine_stop_s": 0.5}

    @rule(engine=st.sampled_from(sorted(ENGINES)), holder=st.sampled_from(["sweep-1", "sweep-1", "sweep-2"]))
    def launches(self, engine: str, holder: str) -> None:
        """The controller launches a trial; another sweep's is refused while one has the node."""
        request = self.launch_request(engine, holder)
        self.carry_out(lambda: launch(self.state, self.declaration, parse(LaunchRequest, request)))

    @rule(engine=st.sampled_from(sorted(ENGINES)), after_s=PAUSES_S)
    def launch_is_killed(self, engine: str, after_s: float) -> None:
        """The launch command dies at any instant."""
        request = self.launch_request(engine, "sweep-1")
        self.carry_out(lambda: launch(self.state, self.declaration, parse(LaunchRequest, request)), after_s)

    @rule(gives_back=st.booleans(), is_late=st.booleans())
    def finishes(self, gives_back: bool, is_late: bool) -> None:
        """The controller ends its trial, or one that ended long ago."""
        request = self.finish_request("0000-old" if is_late else f"{self.trial:04d}-abc")
        self.carry_out(
            lambda: finish(
                self.state, self.declaration, parse(FinishRequest, {**request, "restore_production": gives_back})
            )
        )

    @rule(after_s=PAUSES_S)
    def finish_is_killed(self, after_s: float) -> None:
        """The finish command dies at any instant."""
        request = self.finish_request(f"{self.trial:04d}-abc")
        self.carry_out(lambda: finish(self.state, self.declaration, parse(FinishRequest, request)), after_s)

    @rule(times=st.integers(1, 2))
    def restores(self, times: int) -> None:
        """Somebody runs `tokenpeak restore`, once or twice; then no trial has the node."""
        for _ in range(times):
            self.carry_out(lambda: restore_command(self.state, RestoreRequest(release=True)))
        assert self.state.read(record.NAME) is None

    @rule(after_s=PAUSES_S)
    def restore_is_killed(self, after_s: float) -> None:
        """`tokenpeak restore` dies at any instant."""
        self.carry_out(lambda: restore_command(self.state, RestoreRequest(release=True)), after_s)

    # Not by preconditions: whether a trial has the node may change while rules are drawn, and that must be repeatable.
    @rule()
    def lease_lapses(self) -> None:
        """The controller falls silent; a guard that is alive gives the node back."""
        if self.state.read(record.NAME) is None:
            return
        guard = self.state.read("guard.json")
        armed = self.state.read(record.NAME) or {}
        watched = bool(guard and guard.get("nonce") == armed.get("nonce") and process.is_alive(guard))
        self.state.write(
            lease.FILE,
            {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s() - 60, "lease_s": 30, "holder": "?"},
        )
        if watched:
            assert clock.wait_until(lambda: self.state.read(record.NAME) is None, 60, poll_s=0.1)

    @rule()
    def guard_is_killed(self) -> None:
        """The watchdog dies; the next command that needs one starts another."""
        guard = self.state.read("guard.json")
        if guard and process.is_alive(guard):
            os.kill(guard["pid"], signal.SIGKILL)
            # On a busy machine a killed process lives on for a moment, and would be taken for a guard that watches.
            assert clock.wait_until(lambda: not process.is_alive(guard), 30)

    @rule()
    def engine_is_killed(self) -> None:
        """The engine's leader dies."""
        engine = self.state.read("engine.json")
        if engine and process.is_alive(engine):
            os.kill(engine["pid"], signal.SIGKILL)

    @rule()
    def owner_changes_production(self) -> None:
        """While no trial has the node, its owner stops or starts production."""
        if self.state.read(record.NAME) is not None:
            return
        if self.running:
            make_manager(self.declaration["production"], self.state).stop()
        else:
            self.carry_out(lambda: produce(self.state, self.declaration, 20))
        self.running = not self.running

    @invariant()
    def production_is_as_recorded(self) -> None:
        """Not armed ⇒ production as recorded."""
        if not hasattr(self, "state") or self.state.read(record.NAME) is not None:
            return
        found, _ = production.look(self.declaration["production"], self.state)
        assert self.running == found.running
        if self.running:
            assert "prod" == found.model
            assert serving.complete(self.url, "prod", None) is None


def check(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Trial,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            print_blob=True,
        ),
    )


def test_not_armed_means_production_as_recorded() -> None:
    """A few random lives of a node."""
    check(examples=3, steps=8)


@pytest.mark.faults
def test_not_armed_means_production_as_recorded_at_length() -> None:
    """Many of them."""
    check(examples=25, steps=20)
