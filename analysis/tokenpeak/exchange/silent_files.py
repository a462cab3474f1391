"""Configs of files that name no engine flag: one for each file where two were measured at one load, else one for all.

Files of one load would otherwise count as repeats of a config, whatever was changed between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from tokenpeak.exchange.engine_flags import UNSAID
from tokenpeak.exchange.foreign import ForeignRun

SAME_LENGTH = 0.05
"""Mean tokens of two workloads may differ by this share: random prompts are never quite as long as they were asked."""
REPEATS = "Put repeats of one config into one file (--append-result), or give them one --label."


def configs_of_files(files: Mapping[Path, Sequence[ForeignRun]]) -> tuple[list[list[ForeignRun]], str | None]:
    """The runs of each file of one tool, their configs named where no file does, and the warning; None without need."""
    silent = [path for path, runs in files.items() if any(run.config == UNSAID for run in runs)]
    if len(silent) < 2:
        return [list(runs) for runs in files.values()], None
    pairs = combinations((files[path] for path in silent), 2)
    if not any(_is_same_load(ours, theirs) for pair in pairs for ours in pair[0] for theirs in pair[1]):
        words = f"The {len(silent)} files name no engine flags: they count as one config at different loads."
        return [list(runs) for runs in files.values()], words
    names = _names(silent)
    named = [
        [replace(run, config=names[path]) if run.config == UNSAID else run for run in runs]
        for path, runs in files.items()
    ]
    words = f"The {len(silent)} files name no engine flags: each counts as a config, named by its file. {REPEATS}"
    return _on_one_workload(named), words


def _is_same_load(ours: ForeignRun, theirs: ForeignRun) -> bool:
    """One model at one load, with prompts of one length; answers may be longer under other flags."""
    if (ours.model, ours.level.label) != (theirs.model, theirs.level.label):
        return False
    a, b = ours.workload.input_tokens, theirs.workload.input_tokens
    return a is None or b is None or abs(a - b) <= SAME_LENGTH * max(a, b)


def _on_one_workload(files: Sequence[Sequence[ForeignRun]]) -> list[list[ForeignRun]]:
    """Runs of as many requests of one load under the workload of the first of them, so that they can be compared."""
    first: list[ForeignRun] = []
    shared: list[list[ForeignRun]] = []
    for runs in files:
        shared.append([])
        for run in runs:
            like = next((one for one in first if _is_same_load(one, run) and one.level == run.level), run)
            first += [run] if like is run else []
            shared[-1].append(replace(run, workload=like.workload))
    return shared


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """The files' names without their ends; with their folders' where two are the same."""
    names = {path: path.stem for path in paths}
    if len(set(names.values())) == len(paths):
        return names
    folders = {path: path.resolve().parent.name for path in paths}
    if len(set(folders.values())) == len(paths):
        return folders
    return {path: f"{folders[path]}/{path.stem}" for path in paths}
