"""The end of the demonstration servers: `python -m tokenpeak.sim.end` ends the production that set-ups started here.

Ended is what this user's state folder records, by process. A node that a trial has stays as it is. It needs nothing but
the standard library, so that `make clean` works without an environment.
"""

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.production import end_produced
from tokenpeak.paths import state_dir


def main() -> None:
    """End each, and print which."""
    for recorded in sorted((state_dir() / "nodes").glob("*/production.json")):
        node = recorded.parent.name
        try:
            print(f"{node}: {end_produced(State(recorded.parent))}")
        except (ScriptError, OSError) as error:
            print(f"{node}: {error}")


if __name__ == "__main__":
    main()
