"""Samples of EleutherAI's lm-eval, as `--log_samples` writes them: whether each was answered right."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import LoadError
from tokenpeak.paths import shown

METRICS = ("exact_match", "acc", "acc_norm")
_FILE = re.compile(r"samples_(?P<task>.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")


def read_samples(path: Path, metric: str | None = None) -> dict[tuple[str, str], bool]:
    """(task, sample) → whether it was answered right, of all samples files at or below a path.

    A sample that several filters took apart counts for each. Raises LoadError for a path without samples, or without
    the metric.
    """
    files = [path] if path.is_file() else sorted(path.rglob("samples_*.jsonl"))
    answers: dict[tuple[str, str], bool] = {}
    for file in files:
        match = _FILE.fullmatch(file.name)
        task = match["task"] if match is not None else file.stem
        for number, line in enumerate(bounded.read_bytes(file, error=LoadError).splitlines(), start=1):
            if not line.strip():
                continue
            sample = bounded.parse_json(line, f"{file}, line {number}", error=LoadError)
            if not isinstance(sample, dict) or "doc_id" not in sample:
                raise LoadError(f"{file}, line {number}: no sample of lm-eval, which has a doc_id.")
            name = f"{sample['doc_id']} {sample.get('filter', '')}".strip()
            answers[task, name] = _right(sample, metric, f"{file}, line {number}")
    if not answers:
        raise LoadError(f"{path} has no samples: run lm-eval with --log_samples and give its output folder.")
    return answers


def _right(sample: Mapping[str, Any], metric: str | None, where: str) -> bool:
    names = METRICS if metric is None else (metric,)
    for name in names:
        value = sample.get(name)
        if value in (0, 1):
            return bool(value)
    raise LoadError(
        f"{where}: no {' or '.join(map(shown, names))} of 0 or 1; name the metric that says right or wrong."
    )
