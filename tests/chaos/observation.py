"""What was seen of one chaos run, and how the node is looked at. Independent of the product: no import of it.

A run's folder holds all of it, so that it can be judged again later:

    run.json            seed, limits, faults with their moments, controllers and what they printed, the node's looks
    samples.jsonl       production and engine, asked every 100 ms (sampler.py)
    witness/            what each engine and each production process logged of itself (standin_engine.py)
    archives/WHO/ID/    the archives, as the controllers wrote them
"""

import hashlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PRODUCTION_UNIT = "prod.service"
TRIAL_WORDS = ("8099", "tokenpeak-node.pyz")
"""In the command line of each process that belongs to a trial."""


@dataclass(kw_only=True)
class Struck:
    """A fault as it happened. Times are unix seconds; `struck_s` None: its moment never came."""

    name: str
    phase: str
    delay_s: float
    hold_s: float | None = None
    """How long it lasts; None: until the operator clears up at the end of the run."""
    struck_s: float | None = None
    lifted_s: float | None = None
    note: str = ""


@dataclass(kw_only=True)
class Controller:
    """One `tokenpeak` that ran."""

    who: str
    arguments: list[str]
    began_s: float
    ended_s: float | None = None
    status: int | None = None
    said: str = ""

    @property
    def sweeps(self) -> bool:
        """Whether it borrows nodes."""
        return self.arguments[:1] == ["sweep"]


@dataclass(kw_only=True)
class Look:
    """The node at one moment."""

    definition_sha256: str
    enabled: str
    active: str
    memory_mib: int
    processes: list[str] = field(default_factory=list)
    """Command lines of a trial's processes."""
    units: list[str] = field(default_factory=list)
    """Units of a trial's engine."""


@dataclass(kw_only=True)
class Limits:
    """What the run's spec and production allow, in seconds."""

    lease_s: float
    engine_ready_s: float
    run_s: float
    engine_stop_s: float
    production_ready_s: float
    production_start_s: float
    slack_s: float
    """For a busy machine: what is neither of the others."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Whether production and the engine answered at a moment."""

    t: float
    production: bool
    engine: bool


@dataclass(kw_only=True)
class Life:
    """One process of a stand-in engine, by its own log."""

    port: str
    began_s: float
    last_s: float
    argv: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Observation:
    """A whole run."""

    seed: str
    limits: Limits
    faults: list[Struck]
    controllers: list[Controller]
    before: Look
    after: Look
    settled_s: float
    """When waiting for the node to come back by itself was over."""
    samples: list[Sample] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    archives: list[Path] = field(default_factory=list)
    configs: int = 1
    notes: list[str] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write run.json; the rest is in the folder already."""
        kept = {name: getattr(self, name) for name in ("seed", "settled_s", "configs", "notes")}
        for name in ("limits", "before", "after"):
            kept[name] = asdict(getattr(self, name))
        kept["faults"] = [asdict(fault) for fault in self.faults]
        kept["controllers"] = [asdict(controller) for controller in self.controllers]
        (folder / "run.json").write_text(json.dumps(kept, indent=1))


def read_observation(folder: Path) -> Observation:
    """What a run's folder holds."""
    kept = json.loads((folder / "run.json").read_text())
    return Observation(
        seed=kept["seed"],
        limits=Limits(**kept["limits"]),
        faults=[Struck(**fault) for fault in kept["faults"]],
        controllers=[Controller(**controller) for controller in kept["controllers"]],
        before=Look(**kept["before"]),
        after=Look(**kept["after"]),
        settled_s=kept["settled_s"],
        samples=read_samples(folder / "samples.jsonl"),
        lives=[read_life(path) for path in sorted((folder / "witness").glob("*.jsonl"))],
        archives=sorted(path.parent for path in (folder / "archives").glob("*/*/sweep.json")),
        configs=kept["configs"],
        notes=kept["notes"],
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, less a last line that was being written."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def read_samples(path: Path) -> list[Sample]:
    """The samples in order."""
    return [Sample(t=line["t"], production=line["production"], engine=line["engine"]) for line in read_lines(path)]


def read_life(path: Path) -> Life:
    """What one process logged of itself; its file is called PORT-PID-TIME.jsonl."""
    lines = read_lines(path)
    times = [line["t"] for line in lines] or [int(path.stem.split("-")[2]) / 1e9]
    return Life(
        port=path.stem.split("-")[0],
        began_s=times[0],
        last_s=times[-1],
        argv=next((line["argv"] for line in lines if line["event"] == "start"), []),
        requests=[line for line in lines if line["event"] == "request"],
    )


def look(enter: Sequence[str], nvidia_smi: str) -> Look:
    """The node as it is; `enter` is the command line that runs another one inside."""

    def run(*argv: str) -> str:
        return subprocess.run([*enter, *argv], capture_output=True, text=True, check=False, timeout=60).stdout

    memory = run(nvidia_smi, "--query-gpu=memory.used", "--format=csv,noheader,nounits").split()
    units = run("systemctl", "list-units", "--all", "--no-legend", "--plain", "tokenpeak-engine-*")
    lines = run("ps", "-ww", "-eo", "pid=,args=").splitlines()
    return Look(
        definition_sha256=hashlib.sha256(run("systemctl", "cat", PRODUCTION_UNIT).encode()).hexdigest(),
        enabled=run("systemctl", "is-enabled", PRODUCTION_UNIT).strip(),
        active=run("systemctl", "is-active", PRODUCTION_UNIT).strip(),
        memory_mib=int(memory[0]) if memory else -1,
        processes=[line.strip() for line in lines if any(word in line for word in TRIAL_WORDS)],
        units=[line.split()[0] for line in units.splitlines() if line.strip()],
    )
