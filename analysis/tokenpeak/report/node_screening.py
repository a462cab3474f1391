"""Node screening: the nodes of each kind of hardware side by side, by launches of one config, and who is not usual."""

from collections.abc import Sequence

import polars as pl

from tokenpeak.records import TrialRecord
from tokenpeak.report.blocks import Block, Column, Sentence, answer, code, note, strong, table, warning
from tokenpeak.report.figures import slug
from tokenpeak.report.view import SweepView
from tokenpeak.results.node_launch import launch_of
from tokenpeak.results.node_screening import NodeScreening, screening_of
from tokenpeak.store.archive import Archive

NODES = (
    Column(key="node", title="Node", kind="code"),
    Column(key="verdict", title="Verdict"),
    Column(key="ratio", title="Speed against the median", unit="%", kind="number", digits=1, signed=True),
    Column(key="low", title="From", unit="%", kind="number", digits=1, signed=True, help="Lower end at 95%"),
    Column(key="high", title="To", unit="%", kind="number", digits=1, signed=True, help="Upper end at 95%"),
    Column(key="fall", title="Lost during the run", unit="%", kind="number", digits=1),
    Column(key="power_limit_w", title="Power limit", unit="W", kind="number", digits=0, help="Lowest of its boards"),
    Column(key="power_w", title="Power", unit="W", kind="number", digits=0, help="Of all boards, mean of the run"),
    Column(key="clock_mhz", title="SM clock", unit="MHz", kind="number", digits=0, help="Mean of boards and run"),
    Column(key="temperature_c", title="Hottest board", unit="°C", kind="number", digits=0),
    Column(key="slowed", title="Held back", unit="%", kind="number", digits=0, help="Share of samples, by its driver"),
    Column(key="launches", title="Launches", kind="number", digits=0),
)
LAUNCHES = (
    Column(key="trial_id", title="Trial", kind="code"),
    Column(key="node", title="Node", kind="code"),
    Column(key="status", title="Status", kind="state"),
    Column(key="speed", title="Speed", kind="number", help="Tokens per second; at a rate 1 ÷ mean TPOT"),
    Column(key="fall", title="Lost during the run", unit="%", kind="number", digits=1),
    Column(key="why", title="Why no speed"),
)


def blocks(view: SweepView) -> tuple[Block, ...]:
    """For each group: a sentence, its outliers and its tables; nothing where no nodes were compared."""
    if view.origin is None or view.screening.is_empty():
        return ()
    archive = Archive(view.origin)
    trials = [archive.read_trial(trial_id) for trial_id in view.screening["trial_id"]]
    found: list[Block] = []
    for plan in view.record.plans:
        own = [trial for trial in trials if trial.hardware == plan.hardware]
        if own:
            screened = screening_of(own, view.nodes_of(plan.hardware), view.spec)
            found.append(_answer(screened, plan.hardware, own[0].config.name))
            found += _sentences(view, screened)
            found += _tables(view, screened, own, plan.hardware)
    return tuple(found)


def _answer(screened: NodeScreening, hardware: str, config: str) -> Sentence:
    count, outliers = len(screened.nodes), len(screened.outliers)
    words = "none is slow" if not outliers else f"{outliers} {'is' if outliers == 1 else 'are'} slow or throttling"
    return answer(f"Of {count} nodes with {hardware}, ", strong(words), " by launches of ", code(config), " on each.")


def _sentences(view: SweepView, screened: NodeScreening) -> list[Block]:
    """A warning for each outlier, a note for the others that are not usual, and what the group can show."""
    excluded = view.spec.node_screening is not False and view.spec.node_screening.outliers == "exclude"
    then = "No config was tried there." if excluded else "It was kept: its trials are in every figure."
    named: list[Block] = [warning(f"{node.sentence}. {then}") for node in screened.outliers]
    rest = [node.sentence for node in screened.nodes if node.verdict != "usual" and not node.is_outlier]
    return [*named, *(note(f"{words}.") for words in rest), note(screened.power_words)]


def _tables(view: SweepView, screened: NodeScreening, trials: Sequence[TrialRecord], hardware: str) -> list[Block]:
    nodes = [
        {
            "node": node.node,
            "verdict": node.verdict,
            **{name: _away(getattr(node, name)) for name in ("ratio", "low", "high")},
            "fall": _percent(node.fall),
            "power_limit_w": node.power_limit_w,
            "power_w": node.power_w,
            "clock_mhz": node.clock_mhz,
            "temperature_c": node.temperature_c,
            "slowed": _percent(node.slowed),
            "launches": node.launches,
        }
        for node in sorted(screened.nodes, key=lambda node: (node.ratio is None, node.ratio or 0.0))
    ]
    launches = [(trial, launch_of(trial, view.spec)) for trial in trials]
    rows = [
        {
            "trial_id": trial.trial_id,
            "node": trial.node,
            "status": trial.status,
            "speed": launch.speed,
            "fall": None if launch.fall is None else _percent(-launch.fall),
            "why": launch.failure.replace("_", " ") or None,
        }
        for trial, launch in launches
    ]
    numbers = {column.key: pl.Float64 for column in (*NODES, *LAUNCHES) if column.kind == "number"}
    return [
        table(
            pl.DataFrame(nodes, schema_overrides=numbers, infer_schema_length=None),
            NODES,
            name=f"nodes-{slug(hardware)}",
            title=f"Nodes compared: {hardware}",
            note="Against the median of the usual nodes; the interval is as wide as a usual node's figure varies.",
        ),
        table(
            pl.DataFrame(rows, schema_overrides=numbers, infer_schema_length=None),
            LAUNCHES,
            name=f"node-launches-{slug(hardware)}",
            title=f"Launches that compare nodes: {hardware}",
        ),
    ]


def _away(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
