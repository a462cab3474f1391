"""Judges a chaos run by what was seen from outside: production's answers, the node, the archive, the engine's own log.

It imports nothing of the product, and neither does what it reads (observation.py). Faults after which the documents
leave open whether production comes back are not drawn.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars
from tests.chaos.observation import Controller, Life, Observation, Sample, Struck

Json = dict[str, Any]

SILENT_S = 0.6
"""Production that gives no answer for less than this was merely slow."""
OVERLAP_S = 0.5
NOTICED_S = 8.0
"""Production that somebody starts under load is noticed in 2 s; then the engine is ended, on a busy machine."""
MATCH_S = 0.5
"""A request's end by the client's clock and by the engine's."""
STALL_S = 0.8
ENDED_S = 150.0
"""A controller ends within this, and what faults hold up beside."""


HITS_ENGINE = ("kill:engine", "stop:engine", "disk:full", "production:started", "file:engine.json", "folder:")
"""Faults after which a config's failure may be the truth as seen by the product: its engine was struck."""


@dataclass(frozen=True)
class Finding:
    """What is wrong, in a word and in a sentence."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


def judge(seen: Observation) -> list[Finding]:
    """Everything that is wrong with a run."""
    found: list[Finding] = []
    for check in (
        _observed,
        _given_back,
        _as_before,
        _left_over,
        _overlap,
        _exit_statuses,
        _ended_in_time,
        _archives,
        _tracebacks,
    ):
        found += check(seen)
    return found


def _was_struck(seen: Observation, *names: str) -> list[Struck]:
    return [fault for fault in seen.faults if fault.struck_s is not None and fault.name.startswith(names)]


def down_spans(samples: list[Sample]) -> list[tuple[float, float | None]]:
    """When production gave no answer: from the last good answer before to the first after; None: to the very end."""
    spans: list[tuple[float, float | None]] = []
    last_good: float | None = None
    began: float | None = None
    for sample in samples:
        if sample.production:
            if began is not None and sample.t - began >= SILENT_S:
                spans.append((began, sample.t))
            began, last_good = None, sample.t
        elif began is None:
            began = last_good if last_good is not None else sample.t
    if began is not None:
        spans.append((began, None))
    return spans


def _observed(seen: Observation) -> Iterator[Finding]:
    if not any(sample.production for sample in seen.samples[:50]):
        yield Finding("no_observation", "Production was not seen to answer before the run: nothing can be judged.")
    gaps = [later.t - sample.t for sample, later in itertools.pairwise(seen.samples)]
    if max(gaps, default=0) > 8:
        yield Finding("no_observation", f"The sampler was silent for {max(gaps):.1f} s.")


def _silenced(seen: Observation) -> list[tuple[float, float]]:
    """When the node could not hear its controller, by what was struck."""
    quiet = ("suspend:", "stop:controller", "cable:")
    return [
        (fault.struck_s, fault.lifted_s or seen.settled_s)
        for fault in _was_struck(seen, *quiet)
        if fault.struck_s is not None
    ]


def _attended_until(seen: Observation, begin: float, end: float) -> float:
    """The last moment of a span at which a sweep's controller lived and could be heard."""
    last = begin
    for controller in (controller for controller in seen.controllers if controller.sweeps):
        until = min(end, controller.ended_s or end)
        if controller.began_s > end or until < begin:
            continue
        for quiet_from, quiet_to in _silenced(seen):
            if quiet_from <= until <= quiet_to:
                until = quiet_from
        last = max(last, until)
    return last


def _held_up_s(seen: Observation) -> float:
    """How long processes on the node were suspended by faults; what they hold up waits as long."""
    return sum(
        (fault.lifted_s or seen.settled_s) - fault.struck_s
        for fault in _was_struck(seen, "stop:command", "stop:guard", "stop:production")
        if fault.struck_s is not None
    )


def _given_back(seen: Observation) -> Iterator[Finding]:
    """Production is down no longer than lease, engine's end and its own start after the controller was heard last."""
    limits = seen.limits
    alone_s = limits.lease_s + limits.engine_stop_s + limits.production_start_s + limits.slack_s + _held_up_s(seen)
    attended_s = (
        limits.engine_ready_s
        + limits.run_s
        + limits.engine_stop_s
        + limits.production_ready_s
        + limits.lease_s
        + limits.slack_s
        + _held_up_s(seen)
    )
    if "brought back by the operator" in " ".join(seen.notes):
        yield Finding(
            "production_down", f"Production was not back {alone_s:.1f} s after the sweep's end: `tokenpeak restore`."
        )
    for begin, end in down_spans(seen.samples):
        until = end if end is not None else seen.samples[-1].t
        quiet_from = _attended_until(seen, begin, until)
        if end is None:
            yield Finding(
                "never_back", f"Production does not answer at the end, since {until - begin:.1f} s, whatever was done."
            )
        elif until - quiet_from > alone_s:
            yield Finding(
                "production_down",
                f"Production was down for {until - begin:.1f} s; nobody was heard of "
                f"for the last {until - quiet_from:.1f} s of it, and {alone_s:.1f} s are allowed.",
            )
        elif quiet_from - begin > attended_s:
            yield Finding(
                "attended_too_long",
                f"Production was down for {until - begin:.1f} s in a row under a living controller; a trial may take "
                f"{attended_s:.1f} s.",
            )


def _as_before(seen: Observation) -> Iterator[Finding]:
    """Production's definition, enablement, state and memory are what they were."""
    before, after = seen.before, seen.after
    if before.definition_sha256 != after.definition_sha256:
        yield Finding("definition_changed", "The unit of production is not what it was.")
    for name in ("enabled", "active"):
        if getattr(before, name) != getattr(after, name):
            yield Finding(f"{name}_changed", f"Production was {getattr(before, name)}, and is {getattr(after, name)}.")
    if abs(before.memory_mib - after.memory_mib) > 64:
        yield Finding("memory", f"The boards held {before.memory_mib} MiB, and hold {after.memory_mib} MiB.")


def _left_over(seen: Observation) -> Iterator[Finding]:
    """Nothing of a trial runs on the node: engine, telemetry, guard, commands."""
    if seen.after.processes:
        yield Finding("left_over", "Left on the node: " + "; ".join(seen.after.processes))
    if seen.after.units:
        yield Finding("left_over", "Units left on the node: " + ", ".join(seen.after.units))


def _overlap(seen: Observation) -> Iterator[Finding]:
    """The engine and production never have the node together."""
    by_hand = _was_struck(seen, "production:started", "production:restarted", "operator:restore")
    for engine in (life for life in seen.lives if life.port == "8099"):
        for production in (life for life in seen.lives if life.port == "8000"):
            together = min(engine.last_s, production.last_s) - max(engine.began_s, production.began_s)
            if together > (NOTICED_S if by_hand else OVERLAP_S):
                yield Finding(
                    "overlap",
                    f"An engine and production ran together for {together:.1f} s, from "
                    f"{_clock(max(engine.began_s, production.began_s))} on.",
                )
    two = sorted((life for life in seen.lives if life.port == "8099"), key=lambda life: life.began_s)
    for first, second in itertools.pairwise(two):
        if first.last_s - second.began_s > OVERLAP_S:
            yield Finding("engine_left", f"Two engines ran together for {first.last_s - second.began_s:.1f} s.")


def _exit_statuses(seen: Observation) -> Iterator[Finding]:
    """Status 0 means: complete, and production serves. A sweep that nothing struck ends with it."""
    first = seen.controllers[0]
    if first.status != 0 and not any(fault.struck_s for fault in seen.faults):
        yield Finding("undisturbed_failed", f"No fault struck, and {first.who} ended with status {first.status}.")
    for controller in seen.controllers:
        if controller.status != 0 or controller.ended_s is None or not controller.sweeps:
            continue
        if not _answered_near(seen, controller.ended_s) and not _is_borrowed_by_another(seen, controller):
            yield Finding("exit_zero_while_down", f"{controller.who} ended with status 0 while production was down.")
        ends = [_end_of(path) for path in seen.archives if path.parent.name == _home(controller)]
        if not ends:
            yield Finding(
                "exit_zero_without_archive", f"{controller.who} ended with status 0, and there is no archive."
            )
        elif not any(end and end["status"] == "completed" for end in ends):
            yield Finding("exit_zero_incomplete", f"{controller.who} ended with status 0; no archive is completed.")


def _home(controller: Controller) -> str:
    """Whose archives a controller writes."""
    return "second" if controller.who == "second" else "first"


def _answered_near(seen: Observation, moment_s: float) -> bool:
    return any(sample.production for sample in seen.samples if moment_s - 1.5 <= sample.t <= moment_s + 2.0)


def _is_borrowed_by_another(seen: Observation, controller: Controller) -> bool:
    assert controller.ended_s is not None
    return any(
        other is not controller and other.sweeps and other.began_s < controller.ended_s < (other.ended_s or 0)
        for other in seen.controllers
    )


def _ended_in_time(seen: Observation) -> Iterator[Finding]:
    held_s = sum(
        (fault.lifted_s or fault.struck_s or 0) - (fault.struck_s or 0)
        for fault in seen.faults
        if fault.struck_s is not None and fault.hold_s is not None
    )
    for controller in seen.controllers:
        if "ended by the run" in " ".join(seen.notes) and controller.status == -9 and controller.who == "first":
            yield Finding("controller_hangs", f"{controller.who} did not end within {ENDED_S + held_s:.0f} s.")


def _end_of(archive: Path) -> Json | None:
    try:
        found: Json = json.loads((archive / "end.json").read_text())
    except (OSError, ValueError):
        return None
    return found


def _trials(archive: Path) -> list[tuple[Path, Json]]:
    found = []
    for path in sorted((archive / "trials").glob("*.json")):
        try:
            found.append((path, json.loads(path.read_text())))
        except ValueError:
            found.append((path, {}))
    return found


def _archives(seen: Observation) -> Iterator[Finding]:
    """Each trial's record is what the engine's own log says."""
    deleted = _was_struck(seen, "results:deleted")
    for folder in {path.parent for archive in seen.archives for path in archive.parent.glob("*/trials")}:
        if not (folder / "sweep.json").is_file():
            yield Finding("archive_unreadable", f"{folder.name} holds trials and no sweep.json.")
    for archive in seen.archives:
        trials = _trials(archive)
        for path, trial in trials:
            if not trial:
                yield Finding("archive_torn", f"{path.name} is not JSON.")
                continue
            yield from _judge_trial(seen, archive, trial)
        end = _end_of(archive)
        if end is None:
            if not any(controller.status and controller.status < 0 for controller in seen.controllers) and not deleted:
                yield Finding("no_end", f"{archive.name} has no readable end.json, and no controller was killed.")
            continue
        measured = Counter(trial["config"]["name"] for _, trial in trials if trial and trial["status"] == "ok")
        failed = {trial["config"]["name"] for _, trial in trials if trial and trial["status"] == "failed"}
        if [count for count in measured.values() if count > 1]:
            yield Finding("counted_twice", f"{archive.name}: {dict(measured)}")
        wanted = seen.configs if archive.parent.name == "first" else 1
        if end["status"] == "completed" and len(set(measured) | failed) < wanted and not deleted:
            yield Finding(
                "incomplete", f"{archive.name} is called completed with {dict(measured)} and failed {failed}."
            )
        if end["trials"] != len(trials) and not deleted:
            yield Finding("trials_miscounted", f"end.json counts {end['trials']} trials, and {len(trials)} are there.")


def _judge_trial(seen: Observation, archive: Path, trial: Json) -> Iterator[Finding]:
    began = datetime.fromisoformat(trial["started_at"]).timestamp()
    ended = began + trial["duration_s"]
    name = trial["trial_id"]
    engines = [life for life in seen.lives if life.port == "8099" and began - 1 <= life.began_s <= ended + 1]
    if trial["status"] == "failed":
        hits = [
            fault.name
            for fault in _was_struck(seen, *HITS_ENGINE)
            if fault.struck_s is not None and began - 1 <= fault.struck_s <= ended + 1
        ]
        if not hits:
            failure = trial.get("failure") or {}
            yield Finding(
                "failed_falsely",
                f"{name} is recorded as failed ({failure.get('cause')}: {str(failure.get('message'))[:200]}), and "
                "nothing struck its engine.",
            )
        return
    if trial["status"] != "ok":
        return
    served = [engine for engine in engines if _has_flags(engine, trial)]
    if not served:
        yield Finding("no_engine", f"{name} is recorded as ok, and no engine with its flags logged anything.")
        return
    rows = _rows(archive / "trials" / f"{name}.requests.parquet")
    restoration = trial.get("restoration")
    if restoration and restoration["restored"] and not _answered_near_end(seen, ended):
        yield Finding("restored_falsely", f"{name} says that production was restored; it did not answer.")
    for run in trial["runs"]:
        yield from _judge_run(seen, name, run, began, served, rows)


def _answered_near_end(seen: Observation, moment_s: float) -> bool:
    return any(sample.production for sample in seen.samples if moment_s - 6 <= sample.t <= moment_s + 3)


def _has_flags(engine: Life, trial: Json) -> bool:
    flags = trial["config"]["flags"]
    wanted = str(flags.get("max_num_seqs", ""))
    return not engine.argv or not wanted or any(wanted == word.rpartition("=")[2] for word in engine.argv)


def _rows(path: Path) -> list[Json]:
    return polars.read_parquet(path).to_dicts() if path.is_file() else []


def _judge_run(
    seen: Observation, name: str, run: Json, began: float, engines: list[Life], rows: list[Json]
) -> Iterator[Finding]:
    """Each request that is recorded well was served; a valid run was disturbed by nobody."""
    index, summary = run["run_index"], run["summary"]
    own = [row for row in rows if row["run_index"] == index]
    well = [row for row in own if row["error"] is None and row["status"] == 200]
    start = began + run["started_s"]
    logged = sorted((request for engine in engines for request in engine.requests), key=lambda request: request["t"])
    unmatched = 0
    left = list(logged)
    for row in sorted(well, key=lambda row: row["last_token_s"] or 0):
        at = start + (row["last_token_s"] or 0)
        tokens = row["output_tokens"]
        match = next(
            (request for request in left if abs(request["t"] - at) < MATCH_S + 6 and request["tokens"] == tokens), None
        )
        if match is None:
            unmatched += 1
        else:
            left.remove(match)
    if unmatched:
        yield Finding(
            "not_served",
            f"{name} run {index}: {unmatched} of {len(well)} requests are not in the engine's log.",
        )
    measured = [row for row in well if row["phase"] == "measured"]
    if len(measured) != summary["requests_ok"]:
        yield Finding(
            "requests_miscounted", f"{name} run {index}: {summary['requests_ok']} recorded, {len(measured)} rows."
        )
    if run["verdict"]["status"] != "valid" or not measured or run.get("measured_from_s") is None:
        return
    window = (began + run["measured_from_s"], began + run["measured_from_s"] + summary["duration_s"])
    yield from _undisturbed(seen, f"{name} run {index}", window)


def _undisturbed(seen: Observation, what: str, window: tuple[float, float]) -> Iterator[Finding]:
    """Nobody else used the node in a valid run, and the engine was not gone."""
    inside = [sample for sample in seen.samples if window[0] + 0.3 < sample.t < window[1] - 0.3]
    if sum(sample.production for sample in inside) >= 3:
        yield Finding("valid_beside_production", f"{what} is valid, and production answered during it.")
    for fault in _was_struck(seen, "cable:", "stop:client", "stop:engine"):
        assert fault.struck_s is not None
        lasted = min(window[1], fault.lifted_s or window[1]) - max(window[0], fault.struck_s)
        if lasted > STALL_S:
            yield Finding("valid_under_fault", f"{what} is valid, and {fault.name} lasted {lasted:.1f} s of it.")


def _tracebacks(seen: Observation) -> Iterator[Finding]:
    for controller in seen.controllers:
        if "Traceback (most recent call last)" in controller.said:
            last = [line for line in controller.said.splitlines() if line and not line.startswith(" ")]
            yield Finding("traceback", f"{controller.who} printed a traceback: {' / '.join(last[-3:])[-300:]}")


def _clock(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s).astimezone().strftime("%H:%M:%S.%f")[:-4]
