"""The oracle is independent of the product, silent about a good run, and turned red by each defect that is put back."""

import ast
import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.chaos.observation import Controller, Life, Limits, Look, Observation, Sample, Struck
from tests.chaos.oracle import down_spans, judge

HERE = Path(__file__).parent
BEGAN = 1_800_000_000.0
LIMITS = Limits(
    lease_s=6,
    engine_ready_s=15,
    run_s=20,
    engine_stop_s=3,
    production_ready_s=15,
    production_start_s=1.5,
    slack_s=15,
)
LOOK = Look(definition_sha256="d", enabled="enabled", active="active", memory_mib=20000)
DOWN = (8.0, 20.0)
"""Production is down in the good run, seconds after its beginning."""
LOAD = (12.0, 18.0)
TOKENS, CONCURRENCY, REQUESTS = 32, 4, 12


def samples(down: list[tuple[float, float]], engine: tuple[float, float], until_s: float) -> list[Sample]:
    """Ten a second; production is silent in `down`, the engine answers in `engine`."""
    found = []
    for step in range(int(until_s * 10)):
        at = step / 10
        is_down = any(begin <= at < end for begin, end in down)
        found.append(Sample(t=BEGAN + at, production=not is_down, engine=engine[0] <= at < engine[1]))
    return found


def requests() -> list[dict[str, Any]]:
    """What the engine's own log has: waves of four, two seconds each."""
    waves = REQUESTS // CONCURRENCY
    each_s = (LOAD[1] - LOAD[0]) / waves
    found = []
    for number in range(REQUESTS):
        began = BEGAN + LOAD[0] + number // CONCURRENCY * each_s
        found.append({"t": began + each_s, "began": began, "tokens": TOKENS, "status": 200, "event": "request"})
    return found


def trial() -> dict[str, Any]:
    """The good run's only trial, as its archive has it."""
    duration_s = LOAD[1] - LOAD[0]
    return {
        "trial_id": "0001-abc",
        "status": "ok",
        "failure": None,
        "started_at": datetime.fromtimestamp(BEGAN + 7, UTC).isoformat(),
        "duration_s": 14.0,
        "config": {"name": "max_num_seqs=8", "flags": {"max_num_seqs": 8}},
        "restoration": {"restored": True, "was_running": True, "downtime_s": DOWN[1] - DOWN[0]},
        "runs": [
            {
                "run_index": 0,
                "level": {"concurrency": CONCURRENCY},
                "started_s": LOAD[0] - 7,
                "measured_from_s": LOAD[0] - 7,
                "verdict": {"status": "valid"},
                "summary": {
                    "duration_s": duration_s,
                    "requests_ok": REQUESTS,
                    "output_tok_per_s": REQUESTS * TOKENS / duration_s,
                },
            }
        ],
    }


def write_archive(folder: Path, trials: list[dict[str, Any]], downtime_s: float, status: str = "completed") -> Path:
    """An archive with these trials."""
    archive = folder / "archives" / "first" / "sweep-1"
    (archive / "trials").mkdir(parents=True)
    (archive / "sweep.json").write_text("{}")
    for made in trials:
        (archive / "trials" / f"{made['trial_id']}.json").write_text(json.dumps(made))
        rows = [
            {
                "run_index": 0,
                "phase": "measured",
                "last_token_s": request["t"] - BEGAN - LOAD[0],
                "output_tokens": TOKENS,
                "status": 200,
                "error": None,
            }
            for request in requests()
        ]
        polars.DataFrame(rows, schema_overrides={"error": polars.String}).write_parquet(
            archive / "trials" / f"{made['trial_id']}.requests.parquet"
        )
    end = {
        "status": status,
        "ended_at": datetime.fromtimestamp(BEGAN + 22, UTC).isoformat(),
        "trials": len(trials),
        "production_downtime_s": {"c0": downtime_s},
        "unrestored": [],
    }
    (archive / "end.json").write_text(json.dumps(end))
    return archive


def good(folder: Path) -> Observation:
    """A sweep of one config that nothing struck."""
    archive = write_archive(folder, [trial()], DOWN[1] - DOWN[0])
    argv = ["serve", "model", "--port", "8099", "--max-num-seqs", "8"]
    return Observation(
        seed="good",
        limits=LIMITS,
        faults=[],
        controllers=[
            Controller(
                who="first", arguments=["sweep"], began_s=BEGAN + 1, ended_s=BEGAN + 22, status=0, said="all well"
            )
        ],
        before=LOOK,
        after=LOOK,
        settled_s=BEGAN + 24,
        samples=samples([DOWN], (10.0, 18.5), 30),
        lives=[
            Life(port="8000", began_s=BEGAN - 100, last_s=BEGAN + DOWN[0]),
            Life(port="8099", began_s=BEGAN + 9, last_s=BEGAN + 18.5, argv=argv, requests=requests()),
            Life(port="8000", began_s=BEGAN + 19, last_s=BEGAN + 30),
        ],
        archives=[archive],
    )


def rewrite(seen: Observation, change: Callable[[dict[str, Any]], None], name: str = "trials/0001-abc.json") -> None:
    """Change a file of the archive."""
    path = seen.archives[0] / name
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def struck(name: str, at: float, lifted: float | None = None) -> Struck:
    """A fault, seconds after the run's beginning."""
    return Struck(
        name=name,
        phase="under load",
        delay_s=0,
        struck_s=BEGAN + at,
        lifted_s=BEGAN + lifted if lifted is not None else None,
    )


def left_down(seen: Observation) -> None:
    """Production that crashed between two trials is left down, with exit status 0."""
    seen.faults = [struck("kill:production", 19)]
    seen.samples = samples([(8.0, 30.0)], (10.0, 18.5), 30)
    seen.after = replace(LOOK, active="failed", memory_mib=0)


def production_beside_the_engine(seen: Observation) -> None:
    """Production that somebody starts under load runs beside the engine for 13 s, recorded as ok."""
    seen.faults = [struck("production:started", 12.5)]
    seen.samples = samples([(8.0, 13.0)], (10.0, 26.0), 30)
    seen.lives[1].last_s = BEGAN + 26
    seen.lives[2].began_s = BEGAN + 12.6


def flapping_cable(seen: Observation) -> None:
    """A cable that goes off and on under load, and the run is valid."""
    seen.faults = [struck("cable:flap", 12, 22)]


def results_deleted(seen: Observation) -> None:
    """The results were deleted in mid-sweep: trials come back without sweep.json, exit status 0."""
    seen.faults = [struck("results:deleted", 15)]
    (seen.archives[0] / "sweep.json").unlink()
    seen.archives = []


def deaf_guard(seen: Observation) -> None:
    """A guard that ignores the lease: production comes back when an operator brings it back, and that hides nothing."""
    seen.faults = [struck("kill:controller", 14)]
    seen.controllers[0].status, seen.controllers[0].ended_s = -9, BEGAN + 14
    rescue = Controller(who="restore", arguments=["restore"], began_s=BEGAN + 46, ended_s=BEGAN + 51, status=0)
    seen.controllers.append(rescue)
    seen.samples = samples([(8.0, 50.0)], (10.0, 49.0), 60)
    seen.notes = ["production was brought back by the operator"]


DEFECTS = {
    deaf_guard: {"production_down"},
    left_down: {"never_back", "exit_zero_while_down", "active_changed", "memory"},
    production_beside_the_engine: {"overlap", "valid_beside_production"},
    flapping_cable: {"valid_under_fault"},
    results_deleted: {"exit_zero_without_archive"},
}


def test_a_good_run_has_no_finding(tmp_path: Path) -> None:
    """Nothing is wrong where nothing went wrong."""
    assert [] == judge(good(tmp_path))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_turns_it_red(tmp_path: Path, defect: Callable[[Observation], None]) -> None:
    """Each defect that is put back into what is seen is found, and for its own reason."""
    seen = copy.deepcopy(good(tmp_path))
    defect(seen)

    found = {finding.code for finding in judge(seen)}

    assert DEFECTS[defect] <= found, [str(finding) for finding in judge(seen)]


def test_silences_of_production() -> None:
    """Down from the last good answer to the next; one late answer is no silence."""
    seen = samples([(1.0, 1.2), (3.0, 5.0)], (0, 0), 6)

    assert [(2.9, 5.0)] == [(round(a - BEGAN, 1), round((b or 0) - BEGAN, 1)) for a, b in down_spans(seen)]


@pytest.mark.parametrize("name", ["oracle.py", "observation.py", "sampler.py"])
def test_the_oracle_knows_nothing_of_the_product(name: str) -> None:
    """It imports the standard library, a Parquet reader and what it observes; nothing of tokenpeak."""
    imported = set()
    for node in ast.walk(ast.parse((HERE / name).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module))

    others = {module for module in imported if module.partition(".")[0] not in sys.stdlib_module_names}

    assert others <= {"polars", "tests.chaos.observation"}
