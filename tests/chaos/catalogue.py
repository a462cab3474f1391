"""The faults that a chaos run draws from, and the draw: the same seed gives the same faults at the same moments.

A fault is a name of words joined by colons: `kill:guard`, `file:record.json:halve`, `cable:cut`. How each is
struck and lifted is in stage.py; what follows from it is in oracle.py.
"""

import random
from collections.abc import Sequence

from tests.chaos.observation import Struck

IN_TRIAL = (
    "arming",
    "production stopping",
    "engine starting",
    "warming up",
    "under load",
    "engine stopping",
    "production starting",
    "verifying",
)
ANY = ("probing", *IN_TRIAL)
BY_TRIAL = ("engine starting", "warming up", "under load", "engine stopping")
"""Production is down on purpose."""
LOADED = ("under load",)

HOST_ROLES = ("controller", "ansible", "ssh", "lease", "client")
NODE_ROLES = ("command", "guard", "node-lease", "telemetry", "engine", "production")
STATE_FILES = ("record.json", "engine.json", "lease.json", "lock.json", "guard.json", "outcome.json", "node.json")
HURTS = ("truncate", "halve", "garble", "delete")

SHORT_S, LONG_S = (1.0, 2.5), (22.0, 26.0)
"""Less than the lease; and longer than it takes a node to give itself back."""

Where = dict[str, tuple[Sequence[str], tuple[float, float] | None]]


def _catalogue() -> Where:
    """Name → the phases in which it may strike, and between which bounds it lasts (None: until the run's end)."""
    found: Where = {}
    for role in HOST_ROLES:
        phases = {"client": LOADED, "lease": BY_TRIAL}.get(role, ANY)
        found[f"kill:{role}"] = (phases, None)
        found[f"stop:{role}"] = (phases, SHORT_S)
    found["suspend:controller"] = (IN_TRIAL, LONG_S)
    for role in NODE_ROLES:
        phases = {
            "engine": ("warming up", "under load"),
            "telemetry": LOADED,
            "production": ("production starting", "verifying"),
            "node-lease": BY_TRIAL,
        }.get(role, IN_TRIAL)
        found[f"kill:{role}"] = (phases, None)
        if role != "production":
            found[f"stop:{role}"] = (phases, SHORT_S)
    found["production:restarted"] = (("arming", "verifying"), None)
    found["production:started"] = (("under load",), None)
    for name in STATE_FILES:
        for hurt in HURTS:
            found[f"file:{name}:{hurt}"] = (BY_TRIAL, None)
    found["folder:readonly"] = (BY_TRIAL, None)
    found["disk:full"] = (BY_TRIAL, None)
    found["cable:cut"] = (ANY, SHORT_S)
    found["cable:cut-long"] = (IN_TRIAL, LONG_S)
    found["cable:flap"] = (("warming up", "under load"), (9.0, 12.0))
    found["operator:restore"] = (IN_TRIAL, None)
    found["operator:second-sweep"] = (ANY, None)
    found["operator:interrupt"] = (ANY, None)
    found["operator:hang-up"] = (ANY, None)
    found["results:deleted"] = (BY_TRIAL, None)
    return found


CATALOGUE = _catalogue()
COMMON = {"file": 5, "kill": 12, "stop": 6}
"""Families with many members, and how much all of one weigh together; any other name weighs 1."""


def family(name: str) -> str:
    """The first word of a fault's name."""
    return name.partition(":")[0]


def _weights(names: Sequence[str]) -> list[float]:
    sizes = {kind: sum(family(name) == kind for name in names) for kind in COMMON}
    return [COMMON[family(name)] / sizes[family(name)] if family(name) in COMMON else 1.0 for name in names]


def draw(seed: str) -> tuple[list[Struck], bool, bool]:
    """The faults of a seed in the order of the draw; whether the sweep has two configs; whether it is resumed."""
    chance = random.Random(f"tokenpeak chaos {seed}")
    names = list(CATALOGUE)
    count = chance.choices((1, 2, 3), (3, 4, 3))[0]
    faults: list[Struck] = []
    while len(faults) < count:
        name = chance.choices(names, _weights(names))[0]
        if name in [fault.name for fault in faults]:
            continue
        phases, lasts = CATALOGUE[name]
        faults.append(
            Struck(
                name=name,
                phase=chance.choice(phases),
                delay_s=round(chance.choice((0.0, 0.0, 0.3, 1.0)) * chance.random(), 3),
                hold_s=round(chance.uniform(*lasts), 2) if lasts else None,
            )
        )
    return faults, chance.random() < 0.3, chance.random() < 0.4


def described(fault: Struck) -> str:
    """A fault in words: what, where, for how long, and when it struck."""
    lasts = f" for {fault.hold_s:g} s" if fault.hold_s else ""
    return f"{fault.name} @ {fault.phase} + {fault.delay_s:g} s{lasts}"


def parse(words: str) -> list[Struck]:
    """Faults as `described` prints them, separated by commas: how a minimized list is run."""
    found = []
    for part in words.split(","):
        name, _, rest = part.partition("@")
        phase, _, rest = rest.partition("+")
        delay, _, hold = rest.partition(" for ")
        found.append(
            Struck(
                name=name.strip(),
                phase=phase.strip(),
                delay_s=float(delay.replace("s", "") or 0),
                hold_s=float(hold.replace("s", "")) if hold.strip() else None,
            )
        )
    return found
