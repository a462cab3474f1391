"""A trial's time, span by span: what the node, the engine and the load took, and what TokenPeak itself cost.

Spans come from three clocks' worth of sources (the node's commands, Ansible's task events, the load client); all are
put on the controller's clock, in seconds after the trial's start. Whatever no span claims is orchestration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenpeak.records import Phase, RunRecord, Series

_SHORTEST_GAP_S = 0.001
_TRUSTED_CLOCKS_S = 0.5


def clock_offset_s(answer: Mapping[str, Any], task_ended_unix_s: float, *, is_local: bool) -> float:
    """Node's clock − controller's clock, from a node command's own start and length and when its task ended here.

    A result takes about 0.1 s to come back, so a difference below half a second is no evidence that clocks differ and
    counts as none.
    """
    started = answer.get("started_at_unix_s")
    if is_local or started is None:
        return 0.0
    ended = float(started) + max((p["started_s"] + p["duration_s"] for p in answer.get("phases", ())), default=0.0)
    offset = ended - task_ended_unix_s
    return offset if abs(offset) > _TRUSTED_CLOCKS_S else 0.0


def node_phases(answer: Mapping[str, Any], *, offset_s: float, trial_started_unix_s: float) -> list[Phase]:
    """The phases of a node command on the trial's clock; none when the command did not answer."""
    started = answer.get("started_at_unix_s")
    if started is None:
        return []
    base = float(started) - offset_s - trial_started_unix_s
    return [
        Phase(
            name=str(phase["name"]),
            kind=phase["kind"],
            started_s=base + phase["started_s"],
            duration_s=phase["duration_s"],
        )
        for phase in answer.get("phases", ())
    ]


def load_phase(runs: Sequence[RunRecord], windows: Mapping[int, tuple[float, float]]) -> list[Phase]:
    """From the first run's start to the last token of the last one, warm-ups and drains between them included.

    `windows` maps a run's index to when its first measured request was due and its last token came, after its start.
    """
    if not runs:
        return []
    started_s = min(run.started_s for run in runs)
    ended_s = max(run.started_s + windows.get(run.run_index, (0.0, run.summary.duration_s))[1] for run in runs)
    return [Phase(name="load", kind="load", started_s=started_s, duration_s=ended_s - started_s)]


def fill_gaps(spans: Sequence[Phase], duration_s: float) -> tuple[Phase, ...]:
    """`spans` in order, and orchestration wherever none of them is, so that they add up to the trial."""
    filled: list[Phase] = []
    now_s = 0.0
    for span in sorted(spans, key=lambda phase: (phase.started_s, phase.duration_s)):
        if span.started_s - now_s > _SHORTEST_GAP_S:
            filled.append(_gap(f"before {span.name}", now_s, span.started_s))
        filled.append(span)
        now_s = max(now_s, span.started_s + span.duration_s)
    if duration_s - now_s > _SHORTEST_GAP_S:
        filled.append(_gap("before record", now_s, duration_s))
    return tuple(filled)


def _gap(name: str, from_s: float, to_s: float) -> Phase:
    return Phase(name=name, kind="orchestration", started_s=from_s, duration_s=to_s - from_s)


def shifted(series: Series, shift_s: float) -> Series:
    """The same samples with `shift_s` added to every time."""
    return Series(t_s=tuple(t + shift_s for t in series.t_s), columns=series.columns)


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
