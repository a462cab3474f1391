"""Comparisons of two sides: equal configs under equal loads, figure by figure, and what each shows.

A config equals another by its id, or where its engine build is what changed by everything else that it is resolved to.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenpeak.errors import ExitStatus
from tokenpeak.gate.side import Difference, FigureValues, Load, Side, SideConfig, differences
from tokenpeak.metrics import title_of
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.ranking.upgrade import FEWEST_LAUNCHES, Compared, Upgrade, changes
from tokenpeak.ranking.upgrade import Outcome as Shown

Outcome = Literal["regressed", "improved", "tied", "not comparable"]
OUTCOMES: tuple[Outcome, ...] = ("regressed", "improved", "not comparable", "tied")
"""In the order in which they are shown."""
_OUTCOME_OF: dict[Shown, Outcome] = {
    "slower": "regressed",
    "faster": "improved",
    "tied": "tied",
    "not known": "not comparable",
}
TOO_WIDE = "launches vary too much: anything from half to double is possible"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A config of the old side and the one of the new side that it equals, and by what."""

    old: SideConfig
    new: SideConfig
    by: Literal["id", "settings"]


@dataclass(frozen=True, kw_only=True)
class ConfigComparison:
    """The outcome of one figure of one config under one load; `load` and `metric` are None where all of it is meant."""

    hardware: str
    config: str
    by: Literal["id", "settings"] | None
    load: Load | None = None
    metric: str | None = None
    outcome: Outcome
    change: Upgrade | None = None
    old_launches: int = 0
    new_launches: int = 0
    reason: str = ""

    @property
    def figure(self) -> str:
        """The figure in words."""
        return title_of(self.metric) if self.metric else "all figures"

    @property
    def place(self) -> str:
        """Under which load, in words."""
        return f"{self.load.workload} {self.load.level}" if self.load else "all loads"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Two sides compared: what every comparison shows, by which all intervals hold together."""

    old: Side
    new: Side
    margin: float
    comparisons: tuple[ConfigComparison, ...]
    differences: tuple[Difference, ...]
    only_new: tuple[str, ...]
    """Configs that the old side does not have."""

    def of(self, outcome: Outcome) -> list[ConfigComparison]:
        """The comparisons with this outcome."""
        return [each for each in self.comparisons if each.outcome == outcome]

    @property
    def family(self) -> int:
        """How many intervals hold together."""
        return sum(each.change is not None and each.change.low is not None for each in self.comparisons)

    @property
    def status(self) -> ExitStatus:
        """regressed: MISSED; nothing compared, or something not comparable: INVALID."""
        if self.of("regressed"):
            return ExitStatus.MISSED
        return ExitStatus.INVALID if self.of("not comparable") or not self.comparisons else ExitStatus.GOOD


def compare(
    old: Side,
    new: Side,
    *,
    margin: float,
    metrics: Sequence[str] = (),
    configs: Sequence[str] = (),
    common: bool = False,
) -> Gate:
    """Both sides compared by `metrics`, or by those of each kind of load; only `configs`, by name or id, if any.

    `common` leaves out what only one side has, instead of calling it not comparable.
    """
    hardware = matched_hardware(old, new)
    pairs = list(paired(old, new, hardware))
    wanted = [config for config in old.launched if is_wanted(config, configs)]
    at_once: list[ConfigComparison] = []
    open_: list[tuple[ConfigComparison, Compared]] = []
    for config in wanted:
        pair = next((each for each in pairs if each.old is config), None)
        if pair is None or not pair.new.launches or old.simulated != new.simulated:
            if not common or old.simulated != new.simulated:
                at_once.append(_unpaired(config, pair, old, new, hardware))
            continue
        for load, given in _loads(pair, common=common):
            if isinstance(given, str):
                at_once.append(_of(pair, load, reason=given))
                continue
            for metric in metrics or load.figures:
                made = _figure(pair, load, metric)
                if isinstance(made, ConfigComparison):
                    at_once.append(made)
                elif made is not None:
                    blank = _of(pair, load, metric=metric, sides=made, reason=_breaks(*made))
                    open_.append((blank, _compared(blank, metric, made)))
    shown = changes([compared for _, compared in open_], margin=margin)
    decided = [_decided(blank, change) for (blank, _), change in zip(open_, shown, strict=True)]
    claimed = {id(pair.new) for pair in pairs}
    return Gate(
        old=old,
        new=new,
        margin=margin,
        # A load that does not run any more is said once, not for each figure.
        comparisons=tuple(dict.fromkeys([*at_once, *decided])),
        differences=tuple(differences(old, new, hardware)),
        only_new=tuple(
            config.name for config in new.launched if id(config) not in claimed and is_wanted(config, configs)
        ),
    )


def is_wanted(config: SideConfig, names: Sequence[str]) -> bool:
    """Whether the config is among those named by name or id; all are where none is named."""
    return not names or config.name in names or config.config_id in names


def matched_hardware(old: Side, new: Side) -> dict[str, str]:
    """Old kind of hardware → the new side's that equals it: by its label, else by the boards of its nodes.

    Of a server at a URL, an archive that was packed has another label: the id of its config knows the URL.
    """
    theirs = list(dict.fromkeys(config.hardware for config in new.launched))
    matches: dict[str, str] = {}
    for own in dict.fromkeys(config.hardware for config in old.launched):
        served = _served(old, own)
        alike = [
            each
            for each in theirs
            if _boards(new, each) == _boards(old, own) or (served and _served(new, each) == served)
        ]
        if own in theirs:
            matches[own] = own
        elif len(alike) == 1:
            matches[own] = alike[0]
    return matches


def _boards(side: Side, hardware: str) -> set[str]:
    """The nodes' own labels, without what distinguishes kinds of one sweep."""
    return {node.hardware for node in side.nodes_of(hardware)}


def _served(side: Side, hardware: str) -> set[str]:
    """Ids of what the servers at URLs of a kind serve; empty for nodes on which engines are launched."""
    if any(node.source != "endpoint" for node in side.nodes_of(hardware)):
        return set()
    return {config.config_id for config in side.launched if config.hardware == hardware}


def paired(old: Side, new: Side, hardware: dict[str, str]) -> Iterator[Pair]:
    """The configs that were launched on the old side, each with the new one that it equals, where there is one."""
    left = dict(new.configs)
    by_settings: list[SideConfig] = []
    for config in old.launched:
        known = left.pop((hardware.get(config.hardware, ""), config.config_id), None)
        if known is not None:
            yield Pair(old=config, new=known, by="id")
        else:
            by_settings.append(config)
    for config in by_settings:
        there = hardware.get(config.hardware)
        alike = [each for each in left.values() if each.hardware == there and each.same == config.same]
        launched = [each for each in alike if each.launches] or alike
        if len(launched) == 1:
            left.pop((launched[0].hardware, launched[0].config_id))
            yield Pair(old=config, new=launched[0], by="settings")


def _unpaired(
    config: SideConfig, pair: Pair | None, old: Side, new: Side, hardware: dict[str, str]
) -> ConfigComparison:
    """Why a config of the old side has no counterpart that was launched."""
    if old.simulated != new.simulated:
        reason = f"{'new' if new.simulated else 'old'} is simulated and the other was measured"
    elif config.hardware not in hardware:
        others = ", ".join(dict.fromkeys(each.hardware for each in new.launched)) or "none"
        reason = f"new has other hardware: {others}"
    elif pair is None:
        reason = "new has no such config, or several engine builds of it"
    elif pair.new.dropped is not None:
        reason = f"new dropped it: {pair.new.dropped}"
    else:
        reason = "new planned it and did not launch it"
    return ConfigComparison(
        hardware=config.hardware,
        config=config.name,
        by=None,
        outcome="not comparable",
        old_launches=len(config.launches),
        reason=reason,
    )


def _loads(pair: Pair, *, common: bool) -> Iterator[tuple[Load, str | None]]:
    """The loads of both sides, each with the reason why it cannot be compared, if any."""
    ours, theirs = pair.old.loads, pair.new.loads
    for load in ours or theirs:
        others = theirs or ours
        if load in others:
            yield load, None
            continue
        named = next((each for each in others if (each.workload, each.level) == (load.workload, load.level)), None)
        if named is not None:
            yield load, f"it asks for something else: {_changed(load, named)}"
        elif not common:
            yield load, "new did not ask it"


def _changed(old: Load, new: Load) -> str:
    """Which settings of two loads differ."""
    differing: list[str] = []
    for before, after in zip(json.loads(old.definition), json.loads(new.definition), strict=True):
        keys = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
        differing += [f"{key} {before.get(key)} → {after.get(key)}" for key in keys]
    return ", ".join(differing)


def _figure(pair: Pair, load: Load, metric: str) -> ConfigComparison | tuple[FigureValues, FigureValues] | None:
    """Both sides' values where they can be compared, else what is to be said; None: neither side has the figure."""
    old, new = pair.old.values(load, metric), pair.new.values(load, metric)
    if not (old.measured or old.broken or new.measured or new.broken):
        return None
    if min(len(old.measured), len(new.measured)) >= FEWEST_LAUNCHES:
        return old, new
    for worse, better, outcome in ((new, old, "regressed"), (old, new, "improved")):
        breaks = len(worse.broken) >= FEWEST_LAUNCHES and not worse.measured
        if breaks and len(better.measured) >= FEWEST_LAUNCHES and not better.broken:
            causes = ", ".join(dict.fromkeys(worse.broken))
            reason = f"{causes}, in all launches of {'new' if outcome == 'regressed' else 'old'}"
            return _of(pair, load, sides=(old, new), outcome=outcome, reason=reason)  # type: ignore[arg-type]
    causes = "; ".join(_lacking(name, side) for name, side in (("old", old), ("new", new)) if _lacking(name, side))
    return _of(pair, load, sides=(old, new), reason=f"{causes}. Two launches of each are needed at least")


def _lacking(name: str, values: FigureValues) -> str:
    """The launches that a side lacks, in words."""
    if len(values.measured) >= FEWEST_LAUNCHES:
        return ""
    count = len(values.measured)
    words = f"{name} has {count or 'no'} launch{'' if count == 1 else 'es'} with a figure"
    if values.broken:
        words += f", {len(values.broken)} broke ({', '.join(dict.fromkeys(values.broken))})"
    return words + (f", {values.unusable} measured badly or lost" if values.unusable else "")


def _breaks(old: FigureValues, new: FigureValues) -> str:
    """How many further launches of each side broke; empty where none did."""
    sentences = [
        f"{len(side.broken)} more of {name} broke ({', '.join(dict.fromkeys(side.broken))})"
        for name, side in (("old", old), ("new", new))
        if side.broken
    ]
    return "; ".join(sentences)


def _compared(blank: ConfigComparison, metric: str, sides: tuple[FigureValues, FigureValues]) -> Compared:
    old, new = sides
    return Compared(
        figure=(blank.hardware, blank.load, metric),
        old=old.measured,
        new=new.measured,
        old_nodes=old.nodes,
        new_nodes=new.nodes,
        higher_is_better=metric_direction(metric) == "higher",
    )


def _of(
    pair: Pair,
    load: Load,
    *,
    metric: str | None = None,
    sides: tuple[FigureValues, FigureValues] | None = None,
    outcome: Outcome = "not comparable",
    reason: str = "",
) -> ConfigComparison:
    old, new = sides or (None, None)
    return ConfigComparison(
        hardware=pair.old.hardware,
        config=pair.old.name,
        by=pair.by,
        load=load,
        metric=metric,
        outcome=outcome,
        old_launches=len(old.measured) if old else 0,
        new_launches=len(new.measured) if new else 0,
        reason=reason,
    )


def _decided(blank: ConfigComparison, change: Upgrade) -> ConfigComparison:
    outcome = _OUTCOME_OF[change.outcome]
    return ConfigComparison(
        **{
            **vars(blank),
            "outcome": outcome,
            "change": change,
            "reason": TOO_WIDE if outcome == "not comparable" else blank.reason,
        }
    )
