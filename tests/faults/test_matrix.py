"""The fault matrix: whatever strikes in whichever phase, production serves again by itself and no result is lost."""

import signal
import time
from collections.abc import Callable

import pytest
from tests.faults.bench import FINISHED, LEASE_S, SLACK_S, Bench, Controller, strike_power

pytestmark = [pytest.mark.faults]

BLIP_S = 2.0


def node_says(*names: str) -> Callable[[Bench, Controller], bool]:
    """The node is in one of these phases."""
    return lambda bench, _: bench.phase() in names


def is_probing(_: Bench, controller: Controller) -> bool:
    """Half a second into probing, which takes one or more."""
    return (controller.since_s("Probing") or 0.0) > 0.5


PHASES: dict[str, Callable[[Bench, Controller], bool]] = {
    "probing": is_probing,
    "arming": node_says("arming"),
    "production stopping": node_says("production_stop"),
    "engine starting": node_says("engine_start"),
    "warming up": node_says("first_completion"),
    "under load": lambda bench, _: bench.load_phase() == "loading",
    "collecting": node_says("collecting"),
    "engine stopping": node_says("engine_stop"),
    "production starting": node_says("production_start"),
    "verifying": node_says("verifying"),
    "between trials": lambda _, controller: bool(FINISHED.search(controller.said)),
}


def kill(bench: Bench, controller: Controller) -> float:
    """SIGKILL of the controller: the node hears of nobody any more."""
    struck = time.monotonic()
    controller.process.kill()
    recovered_s = bench.recovered_s(struck, within_s=LEASE_S + bench.production_start_s + SLACK_S)
    controller.wait(5)
    return recovered_s


def interrupt(bench: Bench, controller: Controller) -> float:
    """SIGINT: the trial is torn down and production given back before the controller ends."""
    struck = time.monotonic()
    controller.process.send_signal(signal.SIGINT)
    # The lease is kept meanwhile; it is a connection that takes its time on a busy machine.
    recovered_s = bench.recovered_s(struck, within_s=LEASE_S + bench.production_start_s + 2 * SLACK_S)
    controller.wait(300)
    return recovered_s


def cut(bench: Bench, controller: Controller) -> float:
    """A network that is away for longer than the lease: the node gives itself back alone."""
    struck = time.monotonic()
    bench.node.testnode("cut")
    within_s = LEASE_S + bench.production_start_s + SLACK_S
    while bench.is_armed() and time.monotonic() < struck + within_s:
        time.sleep(0.1)
    assert not bench.is_armed(), f"armed {within_s:.0f} s after the cut; phase {bench.phase()}"
    recovered_s = time.monotonic() - struck
    time.sleep(max(0.0, struck + LEASE_S + 1 - time.monotonic()))
    bench.node.testnode("heal")
    controller.wait(300)
    return recovered_s


def blip(bench: Bench, controller: Controller) -> float:
    """A network that is away for less than the lease: the sweep goes on."""
    bench.node.testnode("cut")
    time.sleep(BLIP_S)
    bench.node.testnode("heal")
    struck = time.monotonic()
    controller.wait(300)
    bench.recovered_s(struck, within_s=200)
    return 0.0


def power(bench: Bench, controller: Controller) -> float:
    """Power loss and boot: the guard's boot unit gives the node back."""
    strike_power(bench)
    bench.node.testnode("kill")
    bench.node.testnode("boot")
    booted = time.monotonic()
    recovered_s = bench.recovered_s(booted, within_s=LEASE_S + bench.production_start_s + SLACK_S)
    controller.wait(300)
    return recovered_s


FAULTS = {"SIGKILL": kill, "SIGINT": interrupt, "cut": cut, "blip": blip, "power": power}
IN_CI = {
    ("SIGKILL", "under load"),
    ("SIGINT", "production starting"),
    ("cut", "engine starting"),
    ("blip", "warming up"),
    ("power", "production stopping"),
}
"""Each fault once, where it hurts: CI runs these in minutes."""
IN_CI_IN_CONTAINER = {("SIGKILL", "engine starting"), ("power", "production stopping")}
ENGINES = {"command": "", "container": ", in a container"}
"""What an engine is, and what its cells are called by in the matrix."""


def cells(in_ci: set[tuple[str, str]]) -> list[object]:
    """Each fault in each phase; those `in_ci` are run there too."""
    return [
        pytest.param(
            fault,
            phase,
            id=f"{fault}-{phase.replace(' ', '-')}",
            marks=[pytest.mark.faults_ci] if (fault, phase) in in_ci else [],
        )
        for phase in PHASES
        for fault in FAULTS
    ]


@pytest.mark.parametrize(("fault", "phase"), cells(IN_CI))
def test_cell(bench: Bench, fault: str, phase: str, record_property: Callable[[str, object], None]) -> None:
    """The node is given back in time, memory free, nothing left over, and the sweep is completed by a resume."""
    record_property("cell", f"{fault} × {phase}{ENGINES['command']}")
    strike(bench, fault, phase, record_property)


@pytest.mark.parametrize(("fault", "phase"), cells(IN_CI_IN_CONTAINER))
def test_cell_in_container(
    container_bench: Bench, fault: str, phase: str, record_property: Callable[[str, object], None]
) -> None:
    """The same with an engine and production in containers: none is left beside production's, no layer, no memory."""
    record_property("cell", f"{fault} × {phase}{ENGINES['container']}")
    strike(container_bench, fault, phase, record_property)


def strike(bench: Bench, fault: str, phase: str, record_property: Callable[[str, object], None]) -> None:
    """One cell: a sweep that is struck in the phase, what becomes of the node, and the sweep's completion."""
    # One trial is enough, save where the fault strikes between two; every process costs a busy machine seconds.
    name = "pair" if phase == "between trials" else "one"
    if phase == "collecting":
        bench.let_engine_chatter()
    controller, before = bench.begin(PHASES[phase], name)
    try:
        recovered_s = FAULTS[fault](bench, controller)
    finally:
        controller.end()
        bench.silence_engine()
    record_property("recovered_s", round(recovered_s, 2))

    archive = bench.finish_sweep(before=before, controller=controller, name=name)

    bench.check_archive(archive, configs=2 if name == "pair" else 1)
    bench.check_as_it_was()
