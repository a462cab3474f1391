"""Runtime of a trial by phase: what the node, the engine and the load took, and what TokenPeak itself cost.

Spans come from three clocks' worth of sources (the node's commands, Ansible's task events, the load client); all are
put on the controller's clock, in seconds after the trial's start. Whatever no span claims is orchestration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.records import Phase, RunRecord, Series

_SHORTEST_GAP_S = 0.001
_TRUSTED_CLOCKS_S = 0.5


def clock_offset_s(answer: LaunchAnswer | FinishAnswer, task_ended_unix_s: float, *, is_local: bool) -> float:
    """Node's clock − controller's clock, from a node command's own start and length and when its task ended here.

    A result takes about 0.1 s to come back, so a difference below half a second is no evidence that clocks differ and
    counts as none.
    """
    started = answer.started_at_unix_s
    if is_local or started is None:
        return 0.0
    ended = started + max((span.started_s + span.duration_s for span in answer.phases), default=0.0)
    offset = ended - task_ended_unix_s
    return offset if abs(offset) > _TRUSTED_CLOCKS_S else 0.0


def node_phases(answer: LaunchAnswer | FinishAnswer, *, offset_s: float, trial_started_unix_s: float) -> list[Phase]:
    """The phases of a node command on the trial's clock; none when the command did not answer."""
    started = answer.started_at_unix_s
    if started is None:
        return []
    base = started - offset_s - trial_started_unix_s
    return [replace(span, started_s=base + span.started_s) for span in answer.phases]


def load_phase(runs: Sequence[RunRecord], windows: Mapping[int, tuple[float, float]]) -> list[Phase]:
    """From the first run's start to the last token of the last one, warm-ups, drains and probes between them included.

    `windows` maps a run's index to when its first measured request was due and its last token came, after its start.
    """
    if not runs:
        return []
    ends = [_ends_s(run, windows) for run in runs]
    started_s, ended_s = min(start for start, _ in ends), max(end for _, end in ends)
    return [Phase(name="load", kind="load", started_s=started_s, duration_s=ended_s - started_s)]


def _ends_s(run: RunRecord, windows: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """When a run began and ended; of a search, its first and its last probe."""
    search = run.max_rate
    if search is not None and search.started_s is not None and search.duration_s is not None:
        return search.started_s, search.started_s + search.duration_s
    start = run.started_s or 0.0
    return start, start + windows.get(run.run_index, (0.0, run.summary.duration_s or 0.0))[1]


def step_spans(
    spans: Iterable[tuple[str, tuple[float, float]]], trial_started_unix_s: float
) -> list[tuple[str, float, float]]:
    """A playbook's steps as (step, start, end) on the trial's clock, in order; `spans` holds unix seconds of here."""
    steps = [(step, started - trial_started_unix_s, ended - trial_started_unix_s) for step, (started, ended) in spans]
    return sorted(steps, key=lambda step: step[1])


def fill_gaps(
    spans: Sequence[Phase], duration_s: float, steps: Sequence[tuple[str, float, float]] = ()
) -> tuple[Phase, ...]:
    """`spans` in order, and orchestration wherever none of them is, so that they add up to the trial.

    What is unclaimed is named after whom it belongs to: the step of the playbook that was running, or Ansible itself.
    """
    filled: list[Phase] = []
    now_s = 0.0
    for span in sorted(spans, key=lambda phase: (phase.started_s, phase.duration_s)):
        filled += _gap(now_s, span.started_s, steps)
        filled.append(span)
        now_s = max(now_s, span.started_s + span.duration_s)
    return (*filled, *_gap(now_s, duration_s, steps))


_OVERHEAD = {"load": "load client"}
"""Names of a step's time that none of its own spans claims."""


def _gap(from_s: float, to_s: float, steps: Sequence[tuple[str, float, float]]) -> list[Phase]:
    """The unclaimed time, cut where steps begin and end; none when the next span began before the last one ended."""
    if to_s <= from_s:
        return []
    cuts = sorted({from_s, to_s, *(cut for _, *ends in steps for cut in ends if from_s < cut < to_s)})
    pieces: list[Phase] = []
    for start_s, end_s in pairwise(cuts):
        middle_s = (start_s + end_s) / 2
        step = next((step for step, began_s, ended_s in steps if began_s <= middle_s <= ended_s), None)
        name = "ansible" if step is None else _OVERHEAD.get(step, f"{step} command")
        if end_s - start_s > _SHORTEST_GAP_S:
            pieces.append(Phase(name=name, kind="orchestration", started_s=start_s, duration_s=end_s - start_s))
    return pieces


def merged(first: Series, second: Series) -> Series:
    """Both series on one clock: every time of either, None where a quantity was not sampled then.

    Raises ValueError when both have a column of the same name.
    """
    if twice := first.columns.keys() & second.columns.keys():
        raise ValueError(f"both series have {', '.join(sorted(twice))}")
    times = sorted({*first.t_s, *second.t_s})
    columns: dict[str, tuple[float | None, ...]] = {}
    for series in (first, second):
        for name, column in series.columns.items():
            at = dict(zip(series.t_s, column, strict=True))
            columns[name] = tuple(at.get(t) for t in times)
    return Series(t_s=tuple(times), columns=columns)
