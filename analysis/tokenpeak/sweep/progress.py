"""Progress of a sweep: a live table on a terminal, plain lines when piped; and notifications to its receivers."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Group
from rich.live import Live
from rich.text import Text

from tokenpeak import paths
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import InventoryError
from tokenpeak.loadgen.job import Status
from tokenpeak.node.guard import notify
from tokenpeak.node.machine.words import one_line
from tokenpeak.records import EndRecord, TrialRecord
from tokenpeak.search.remaining import TrialCount
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.inventory.nodes import Inventory, Node

_PHASE_WORDS: dict[Step, str] = {
    "launch": "engine starts in production's place",
    "load": "load",
    "finish": "production returns, results are collected",
    "restore": "production returns",
    "install": "installing",
    "probe": "probing",
}
_IDLE_WORDS: dict[Step, str] = _PHASE_WORDS | {
    "launch": "engine starts",
    "finish": "engine ends, results are collected",
    "restore": "engine ends",
}
"""On a node without production."""
_REFRESH_PER_S = 2
SIDE = "controller"
LOG = "notify.log"


@dataclass
class _Row:
    """What one node is doing."""

    trial: str = ""
    config: str = ""
    phase: str = "waiting"
    since_s: float = field(default_factory=time.monotonic)
    progress_file: Path | None = None
    output_tok_per_s: float | None = None
    ttft_s: float | None = None
    level: str = ""


class _Stdout:
    """Standard output, silent once nobody can read it: a terminal that hung up or a pipe that closed ends no sweep."""

    @property
    def _stream(self) -> TextIO:
        # While a live table is shown, rich stands in for the stream.
        stream: TextIO = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        return stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ProgressDisplay:
    """The state that is shown. Workers report to it, from any thread; `say` prints a line for good."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self._console = SafeConsole(file=cast(TextIO, _Stdout()), highlight=False, soft_wrap=True)
        self._terminal = sys.stdout.isatty() if terminal is None else terminal
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._idle: Collection[str] = ()
        self._count = TrialCount(remaining=0)
        self._at_once = 1
        self._durations_s: list[float] = []
        self._best = ""
        self._began_s = time.monotonic()

    def say(self, line: str) -> None:
        """A line that stays, with the time of day when nobody watches live."""
        stamp = "" if self._terminal else time.strftime("%H:%M:%S ")
        self._console.print(Text(f"{stamp}{one_line(line)}"))

    def expect(self, count: TrialCount, nodes: tuple[str, ...], at_once: int, idle: Collection[str] = ()) -> None:
        """The sweep's trials, and its nodes, so many of which work at once; `idle` ones have no production."""
        with self._lock:
            self._idle = idle
            self._count = count
            self._at_once = at_once
            self._rows = {node: _Row() for node in nodes}
            self._began_s = time.monotonic()

    def trial_begins(self, node: str, trial_id: str, config: str, reason: str) -> None:
        """A node takes up a trial."""
        with self._lock:
            self._rows[node] = _Row(trial=trial_id, config=config, phase="starting")
        if not self._terminal:
            self.say(f"{node} {trial_id} {config} begins ({reason})")

    def follow(self, node: str, progress_file: Path) -> None:
        """Read the node's throughput and latency from the load client's progress file."""
        with self._lock:
            self._rows[node].progress_file = progress_file

    def phase(self, event: Event) -> None:
        """A step began or ended on a node."""
        node, step = event.node, event.step
        if event.kind != "started" or step not in _PHASE_WORDS:
            return
        with self._lock:
            row = self._rows.setdefault(node, _Row())
            words = (_IDLE_WORDS if node in self._idle else _PHASE_WORDS)[step]
            row.phase, row.since_s, row.level = words, time.monotonic(), ""
            label = f"{node} {row.trial}".strip()
        if not self._terminal:
            self.say(f"{label} {words}")

    def trial_ended(self, record: TrialRecord, value: str, best: str, count: TrialCount) -> None:
        """A node's trial ended; `value` is its objective in words, `best` the best so far."""
        with self._lock:
            if count.ended >= self._count.ended:  # else another node's trial ended meanwhile
                self._count = count
            self._rows[record.node] = _Row()
            self._durations_s.append(record.duration_s or 0.0)
            self._best = best
            standing = "" if self._terminal else f" · {self._standing()}"
        self.say(f"{record.node} {record.trial_id} {record.config.name}: {_outcome(record, value)}{standing}")

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table while the body runs, when there is a terminal."""
        if not self._terminal:
            yield
            return
        with Live(
            get_renderable=self.table,
            console=self._console,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        ):
            yield

    def eta_s(self) -> float | None:
        """Seconds until the last trial ends, from the mean of those that ended; None before the first."""
        if not self._durations_s:
            return None
        mean_s = sum(self._durations_s) / len(self._durations_s)
        return mean_s * self._count.remaining / self._at_once

    def table(self) -> Group:
        """How far the sweep is, and what each node does now, with those at work first."""
        with self._lock:
            rows = dict(self._rows)
            standing = self._standing()
        # A line for each node: what does not fit is cut from its config and its phase.
        table = SafeTable(box=None, pad_edge=False, expand=True)
        for title in ("node", "trial", "config", "phase", "tok/s", "TTFT p50", "for"):
            right, long = title in ("tok/s", "TTFT p50", "for"), title in ("config", "phase")
            table.add_column(title, justify="right" if right else "left", no_wrap=True, ratio=1 if long else None)
        # Nodes at work first: a large inventory has more of them than a terminal has lines.
        for node, row in sorted(rows.items(), key=lambda entry: not entry[1].trial):
            _read_progress(row)
            table.add_row(
                node,
                row.trial.partition("-")[0],
                row.config,
                f"{row.phase} {row.level}".strip(),
                "" if row.output_tok_per_s is None else f"{row.output_tok_per_s:,.0f}",
                "" if row.ttft_s is None else f"{row.ttft_s * 1000:,.0f} ms",
                f"{time.monotonic() - row.since_s:,.0f} s",
            )
        return Group(Text(standing), table)

    def _standing(self) -> str:
        """How far the sweep is, the best so far, and how long it will take."""
        standing = f"{self._count.ended} of {self._count.total} trials"
        if self._best:
            standing += f" · best so far {self._best}"
        eta = self.eta_s()
        if eta is not None:
            standing += f" · about {timedelta(seconds=round(eta))} left"
        return standing


def _read_progress(row: _Row) -> None:
    """Bring the row up to what its load client last wrote; a file that is not there yet changes nothing."""
    if row.progress_file is None or row.phase != _PHASE_WORDS["load"]:
        return
    try:
        status = Status.model_validate_json(row.progress_file.read_bytes())
    except (OSError, ValueError):
        return
    row.output_tok_per_s = status.output_tok_per_s
    row.ttft_s = status.ttft_s_p50
    row.level = f"{status.requests_done}/{status.requests_total or ''} {status.level_label}"


def _outcome(record: TrialRecord, value: str) -> str:
    if record.failure is not None:
        first = record.failure.message.splitlines()[0] if record.failure.message else ""
        cause = "" if record.failure.cause == record.status else f"{record.failure.cause}: "
        return f"{record.status}: {cause}{first}"
    invalid = sum(run.verdict.status == "invalid" for run in record.runs)
    note = f", {invalid} of {len(record.runs)} runs invalid" if invalid else ""
    note += ", other runs left out" if record.left_out else ""
    return f"{value}{note} in {record.duration_s:.0f} s ({record.orchestration_s:.1f} s orchestration)"


class Notifier:
    """Notifies the receivers of an inventory's nodes, each by a process of its own: nothing here is waited for."""

    def __init__(self, inventory: Inventory, sweep_id: str) -> None:
        self._inventory = inventory
        self._sweep_id = sweep_id
        self._down: set[str] = set()

    def production(self, node: str, *, is_back: bool) -> None:
        """How production of a node stands after it was given back: an outage is notified once, and its end."""
        if is_back and node in self._down:
            self._down.discard(node)
            self._notify("production_back", f"Production of {node} is back.", node)
        elif not is_back and node not in self._down:
            self._down.add(node)
            look = f"Look with `tokenpeak status --inventory {self._inventory.name}`."
            text = f"Production of {node} is not known to be back. The node's guard acts. {look}"
            self._notify("production_down", text, node)

    def left_out(self, node: str, failures: int) -> None:
        """A node that the sweep goes on without."""
        text = f"{node} is left out of sweep {self._sweep_id} from here on: {failures} failures in a row."
        self._notify("node_excluded", text, node)

    def ended(self, end: EndRecord) -> None:
        """How the sweep ended, to the receivers of all its nodes."""
        is_finished = end.status == "completed"
        trials, problems = (
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((end.trials, "trial"), (len(end.problems), "problem"))
        )
        text = f"Sweep {end.sweep_id} {'is completed' if is_finished else 'was interrupted'}: {trials}, {problems}"
        text += f"; production is not back on {', '.join(end.unrestored)}." if end.unrestored else "."
        self._notify("sweep_finished" if is_finished else "sweep_aborted", text)

    def aborted(self, error: BaseException) -> None:
        """What ended the sweep before it could write how it stands."""
        self._notify("sweep_aborted", f"Sweep {self._sweep_id} was aborted by {type(error).__name__}.")

    def _notify(self, kind: str, text: str, node: str | None = None) -> None:
        """To the receivers of the node, or of all nodes."""
        nodes = self._inventory.nodes if node is None else (self._inventory.node(node),)
        declared = receivers_of(nodes)
        sent = notify.event(kind, text, source=SIDE, node=node, sweep_id=self._sweep_id, inventory=self._inventory.name)
        argv = [sys.executable, "-P", "-m", notify.__name__]
        try:
            notify.start(argv, notify.called(declared, kind, SIDE), sent, paths.state_dir() / LOG)
        except (OSError, ValueError) as error:
            # The sweep goes on: giving nodes back matters more than saying so.
            sys.stderr.write(f"nobody could be notified of {kind}: {error}\n")


def receivers_of(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """The receivers that the nodes' variables declare, each once. Raises InventoryError for a wrong one."""
    receivers: dict[str, dict[str, Any]] = {}
    for node in nodes:
        declared = node.variables.get("tokenpeak_notify") or []
        if wrong := notify.problems(declared):
            raise InventoryError(f"Node {node.name}: {' '.join(wrong)}")
        receivers |= {json.dumps(receiver, sort_keys=True): receiver for receiver in declared}
    return list(receivers.values())


def lacking(inventory: Inventory) -> list[str]:
    """What this machine lacks to notify the inventory's receivers. Raises InventoryError for a wrong one."""
    return notify.problems(receivers_of(inventory.nodes), SIDE)
