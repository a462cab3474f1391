"""Main effects of axes by NumPy's least squares: contrasts that the launched configs determine, and their F tests."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from scipy import stats

from judge.raw import Raw

Rows = list[tuple[Mapping[str, str], float, int]]


def rows_of(raw: Raw, hardware: str) -> Rows:
    """A row per config of the grid that gave a result: its alternatives, mean log objective, launches."""
    values = raw.values(hardware, raw.metric)
    configs = {raw.label(trial["config"]): trial["config"] for trial in raw.trials if trial["hardware"] == hardware}
    return [
        (configs[label]["choices"], fmean(math.log(each) for each in own), len(own))
        for label, own in values.items()
        if set(configs[label]["choices"]) == set(raw.axes)
    ]


def _design(rows: Rows, axes: Mapping[str, Sequence[str]]) -> tuple[np.ndarray, list[tuple[str, str]]]:
    columns = [(axis, name) for axis, names in axes.items() for name in names]
    matrix = [[1.0, *(float(choices[axis] == name) for axis, name in columns)] for choices, *_ in rows]
    return np.array(matrix), columns


def _rss(matrix: np.ndarray, response: np.ndarray) -> tuple[float, int]:
    found, *_ = np.linalg.lstsq(matrix, response, rcond=None)
    return float(np.sum((response - matrix @ found) ** 2)), int(np.linalg.matrix_rank(matrix))


def axis_gains(raw: Raw, hardware: str) -> dict[str, tuple[float, str, str, bool]]:
    """For each axis the largest gain of an alternative over a comparable one, the two, and whether it matters."""
    rows = rows_of(raw, hardware)
    axes = {
        axis: [name for name in names if any(row[0][axis] == name for row in rows)] for axis, names in raw.axes.items()
    }
    varied = {axis: names for axis, names in axes.items() if len(names) > 1}
    matrix, columns = _design(rows, varied)
    response = np.array([value for _, value, _ in rows])
    beta, *_ = np.linalg.lstsq(matrix, response, rcond=None)
    rank = int(np.linalg.matrix_rank(matrix))
    rss, _ = _rss(matrix, response)
    freedom = len(rows) - rank
    found = {}
    for axis, names in varied.items():
        best: tuple[float, str, str] | None = None
        for first in names:
            for second in names:
                contrast = np.zeros(matrix.shape[1])
                contrast[1 + columns.index((axis, first))] += 1
                contrast[1 + columns.index((axis, second))] -= 1
                is_known = int(np.linalg.matrix_rank(np.vstack([matrix, contrast]))) == rank
                gain = float(contrast @ beta)
                if first != second and is_known and (best is None or gain > best[0]):
                    best = (gain, first, second)
        if best is None:
            continue
        reduced, _ = _design(rows, {other: own for other, own in varied.items() if other != axis})
        less, lower = _rss(reduced, response)
        matters = False
        if freedom > 0 and rank > lower:
            statistic = ((less - rss) / (rank - lower)) / (rss / freedom) if rss > 0 else math.inf
            matters = bool(stats.f.sf(statistic, rank - lower, freedom) < 0.05)
        found[axis] = (math.expm1(best[0]), best[1], best[2], matters)
    return found


def inseparable(raw: Raw, hardware: str) -> list[str]:
    """Axes of which several alternatives were launched and no two can be compared."""
    rows = rows_of(raw, hardware)
    known = axis_gains(raw, hardware)
    return [axis for axis in raw.axes if len({row[0][axis] for row in rows}) > 1 and axis not in known]
