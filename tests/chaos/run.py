"""`python -m tests.chaos.run --seed S --runs N`: faults drawn at random, struck at real sweeps, judged by the oracle.

A failing seed is printed with its faults and their moments; `--only SEED` plays it again, `--faults "kill:guard @ under
load + 0 s"` plays a list of one's own. Exit status 1 when a run failed.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.catalogue import described, draw, parse
from tests.chaos.hands import Hands, play
from tests.chaos.observation import Controller as Seen
from tests.chaos.observation import Observation, Struck, read_observation
from tests.chaos.oracle import ENDED_S, Finding, judge
from tests.chaos.stage import Stage, seen
from tests.faults.conftest import _free_number
from tests.faults.test_matrix import PHASES
from tests.rig.conftest import why_no_rig

from tokenpeak.node.machine import clock

QUIET_S = 1.5
"""Production must answer for so long before a run counts as settled."""


def one_run(stage: Stage, seed: str, faults: list[Struck], folder: Path, *, pair: bool, resume: bool) -> Observation:
    """Strike these faults at one sweep, wait for the node, clear up, and go on with the sweep; what was seen."""
    before = stage.look()
    folder.mkdir(parents=True)
    sampler = stage.start_sampler(folder / "samples.jsonl")
    notes: list[str] = []
    controllers: list[Seen] = []
    hands: Hands | None = None
    try:
        time.sleep(0.5)
        name = "pair" if pair else "one"
        arguments = ["sweep", "--inventory", "rig", "--sweep", name, "--no-report"]
        began_s = time.time()
        controller = stage.bench.start(*arguments)
        hands = Hands(stage, controller)
        over = threading.Event()
        threads = [threading.Thread(target=play, args=(fault, hands, PHASES, over), daemon=True) for fault in faults]
        for thread in threads:
            thread.start()
        limit_s = ENDED_S + sum(fault.hold_s or 0.0 for fault in faults)
        if not clock.wait_until(lambda: controller.process.poll() is not None, limit_s, poll_s=0.1):
            notes.append("the first controller was ended by the run")
        controller.end()
        controllers.append(seen(controller, "first", arguments, began_s))
        # A fault with an end of its own is waited for: the way must be clear before anything is expected.
        for thread in threads:
            thread.join(60)
        over.set()
        controllers += hands.seen()
        settled_s = _await_return(stage, folder / "samples.jsonl")
        for fault in reversed(faults):
            hands.lift(fault)
        if not _answers_steadily(folder / "samples.jsonl"):
            notes.append("production was brought back by the operator")
            controllers.append(_command(stage, "restore", "restore", "--inventory", "rig", "--release"))
            _await(lambda: _answers_steadily(folder / "samples.jsonl"), 20)
        if resume:
            controllers += _resume(stage, name)
        _await(lambda: not stage.look().processes, 12)
        after = stage.look()
        time.sleep(0.3)
    finally:
        if hands is not None:
            hands.let_go()
        sampler.kill()
        sampler.wait(10)
    shutil.copytree(stage.witness(), folder / "witness")
    _keep_archives(stage.bench.root / "results", folder / "archives" / "first")
    if hands.second_results:
        _keep_archives(hands.second_results, folder / "archives" / "second")
    observation = Observation(
        seed=seed,
        limits=stage.limits,
        faults=faults,
        controllers=controllers,
        before=before,
        after=after,
        settled_s=settled_s,
        configs=2 if pair else 1,
        notes=notes,
    )
    observation.save(folder)
    return read_observation(folder)


def _await(is_so: Callable[[], bool], within_s: float) -> bool:
    return bool(clock.wait_until(is_so, within_s, poll_s=0.3))


def _tail(path: Path) -> list[dict[str, object]]:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 4000))
        lines = stream.read().decode().split("\n")[1:]
    return [json.loads(line) for line in lines if line.endswith("}")]


def _answers_steadily(samples: Path) -> bool:
    """Whether production has answered each time for QUIET_S."""
    recent = [sample for sample in _tail(samples) if float(str(sample["t"])) > time.time() - QUIET_S]
    return len(recent) >= 3 and all(sample["production"] for sample in recent)


def _await_return(stage: Stage, samples: Path) -> float:
    """Wait until production answers and no trial has the node, or until that is overdue; when that was."""
    limits = stage.limits
    within_s = limits.lease_s + limits.engine_stop_s + limits.production_start_s + limits.slack_s + QUIET_S + 2
    _await(lambda: _answers_steadily(samples), within_s)
    return time.time()


def _command(stage: Stage, who: str, *arguments: str, within_s: float = 90) -> Seen:
    began_s = time.time()
    controller = stage.bench.start(*arguments)
    clock.wait_until(lambda: controller.process.poll() is not None, within_s, poll_s=0.1)
    controller.end()
    return seen(controller, who, list(arguments), began_s)


def _resume(stage: Stage, name: str) -> list[Seen]:
    """Go on with a sweep that did not complete."""
    begun = stage.bench.archives()
    if not begun:
        return []
    try:
        if json.loads((begun[-1] / "end.json").read_text())["status"] == "completed":
            return []
    except (OSError, ValueError):
        pass
    return [_command(stage, "resume", "sweep", "--resume", begun[-1].name, "--no-report", within_s=150)]


def _keep_archives(results: Path, target: Path) -> None:
    if results.is_dir():
        shutil.copytree(results, target)


def report(observation: Observation, findings: list[Finding], seconds: float, number: str) -> None:
    """A line for a run; for one that failed, everything that is needed to play it again."""
    faults = "; ".join(
        described(fault) + ("" if fault.struck_s else f" (not struck: {fault.note})") for fault in observation.faults
    )
    status = ",".join(f"{controller.who}={controller.status}" for controller in observation.controllers)
    print(f"{number} seed {observation.seed}: {'FAILED' if findings else 'ok'} in {seconds:.0f} s [{status}] {faults}")
    for finding in findings:
        print(f"      {finding}")
    if findings:
        began = observation.controllers[0].began_s
        for fault in observation.faults:
            if fault.struck_s:
                lifted = f", lifted at {fault.lifted_s - began:.2f} s" if fault.lifted_s else ""
                print(f"      {fault.name} struck {fault.struck_s - began:.2f} s after the sweep began{lifted}")
        print(f"      again: make chaos ONLY={observation.seed}", flush=True)
    sys.stdout.flush()


def main() -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", default="1", help="what all runs' seeds begin with")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", help="play this one seed again")
    parser.add_argument("--faults", help="play this list of faults instead of a draw")
    parser.add_argument("--keep", type=Path, help="keep what was seen of failing runs below this folder")
    options = parser.parse_args()
    # What was set up is taken away, however this is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reason = why_no_rig()
    if reason:
        print(f"skipped: {reason}")
        return 0
    seeds = [options.only] if options.only else [f"{options.seed}-{number}" for number in range(1, options.runs + 1)]
    failed = 0
    place = Path(tempfile.mkdtemp(prefix="tokenpeak-chaos-"))
    number, lock = _free_number()
    stage: Stage | None = None
    try:
        for at, seed in enumerate(seeds, 1):
            faults, pair, resume = (parse(options.faults), False, False) if options.faults else draw(seed)
            if stage is None:
                stage = Stage(place, number)
            else:
                stage.fresh()
            started = time.monotonic()
            folder = place / f"run-{seed}"
            observation = one_run(stage, seed, faults, folder, pair=pair, resume=resume)
            findings = judge(observation)
            failed += bool(findings)
            report(observation, findings, time.monotonic() - started, f"{at}/{len(seeds)}")
            if options.keep and findings:
                shutil.copytree(folder, options.keep / f"{seed}-{time.time():.0f}", dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            if findings or any(fault.name.startswith(("folder", "file:node.json")) for fault in faults):
                stage.down()
                stage = None
    finally:
        if stage is not None:
            stage.down()
        shutil.rmtree(place, ignore_errors=True)
        del lock
    print(f"{len(seeds)} seeds have run, {len(seeds) - failed} without a finding.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
