"""How many of a sweep's checks have something to look at, and what they find."""

import re
from typing import Any

from judge.raw import Raw
from judge.text import Figures


def checks(raw: Raw, text: str) -> Figures:
    """How many of the checks have something to look at, and whether an axis has no matched pair."""
    shown = re.search(r"(\d+) of (\d+) checks", text)
    card = re.search(r"from (\d+) checks(?:[^;]*; (\d+) more had no data)?", text)
    runs = [run for trial in raw.trials if trial["status"] == "ok" for run in trial["runs"]]
    repeated = any(raw.spread(hw)[0] is not None for hw in raw.hardware)
    given = [
        any(run["summary"]["output_tok_per_s"] for run in runs),
        any(_waves(run) is not None for run in runs),
        True,  # units: every run has figures that multiply
        # The shape of a model that was made on one machine is known nowhere else.
        any((trial.get("startup") or {}).get("kv_cache_tokens") for trial in raw.trials)
        and all("/" in trial["config"]["model"]["name"] for trial in raw.trials),
        any((run["summary"]["itl_s"] or {}).get("mean") for run in runs),
        any(len({trial["config"]["choices"].get(axis) for trial in raw.trials} - {None}) > 1 for axis in raw.axes),
        any(run["summary"]["output_tokens"] for run in runs),
        bool(runs),
        any(node["gpus"] for node in raw.sweep["nodes"]) and any(run["summary"]["output_tok_per_s"] for run in runs),
        repeated,
        len({trial["config"]["config_id"] for trial in raw.trials}) > 1,
    ]
    if shown:
        yield shown[1], sum(given)
        yield shown[2], len(given)
    else:
        assert card is not None
        yield card[1], sum(given)
        yield card[2] or "0", len(given) - sum(given)
    unmatched = sum(1 for axis in raw.axes if not _has_pair(raw, axis))
    levels = {(run["workload"]["name"], run["level_label"]) for run in runs if (_waves(run) or 2) < 2}
    warnings = re.search(r"(\d+|no) warning", text)
    assert warnings is not None
    yield warnings[1].replace("no", "0"), unmatched + len(levels)


def _waves(run: dict[str, Any]) -> float | None:
    """Waves of a closed loop between its ramp and its drain, one each where that was not kept."""
    concurrency, summary = run["level"].get("concurrency"), run["summary"]
    if run["verdict"]["status"] == "invalid" or not concurrency or summary["output_tok_per_s"] is None:
        return None
    steady = summary.get("steady_waves")
    return float(steady) if steady is not None else max(1e-9, summary["requests_sent"] / concurrency - 2 + 1e-9)


def _has_pair(raw: Raw, axis: str) -> bool:
    """Whether two configs with a result differ in this axis alone, where it has two alternatives with a result."""
    for hw in raw.hardware:
        configs = {trial["config"]["config_id"]: trial["config"]["choices"] for trial, _ in raw.runs(hw)}
        choices = [each for each in configs.values() if axis in each]
        if len({each[axis] for each in choices}) < 2:
            continue
        rest = [tuple(sorted((key, value) for key, value in each.items() if key != axis)) for each in choices]
        if len(set(rest)) < len(rest):
            continue
        return False
    return True
