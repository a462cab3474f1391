"""Raw files of an archive as plain dictionaries, and the few quantities that everything else is made of."""

import json
import math
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import zstandard
from scipy import stats

Json = dict[str, Any]
WIDEST = math.log(2)
"""An interval from less than half to more than double its value says nothing."""


def unpacked(archive: Path, folder: Path) -> Path:
    """The archive's folder; of one in a file, its content."""
    if archive.is_dir():
        return archive
    with (
        archive.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as packed,
    ):
        packed.extractall(folder, filter="data")
    (sweep,) = folder.glob("**/sweep.json")
    return sweep.parent


def geometric(values: Iterable[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(math.log(value) for value in values))


class Raw:
    """One sweep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sweep: Json = json.loads((folder / "sweep.json").read_text())
        end = folder / "end.json"
        self.end: Json | None = json.loads(end.read_text()) if end.is_file() else None
        self.trials: list[Json] = [json.loads(path.read_text()) for path in sorted((folder / "trials").glob("*.json"))]
        spec = self.sweep["spec"]
        self.margin: float = spec["search"]["margin"]
        self.baselines: list[str] = spec["search"]["baseline"]
        plans = spec["workloads"]
        self.workload: str = spec["objective"]["workload"] or plans[0]["workload"]["name"]
        self.metric: str = spec["objective"]["metric"]
        own = next(plan for plan in plans if plan["workload"]["name"] == self.workload)
        self.level: str = spec["objective"]["level"] or level_label(own["levels"][0])
        self.axes: dict[str, list[str]] = {
            axis: [choice["name"] for choice in choices] for axis, choices in spec["axes"].items()
        }

    @cached_property
    def hardware(self) -> list[str]:
        """The kinds of hardware in the order in which trials met them."""
        return list(dict.fromkeys(trial["hardware"] for trial in self.trials))

    @cached_property
    def imported(self) -> bool:
        """Whether somebody else measured it."""
        return self.sweep.get("imported") is not None

    @cached_property
    def launches_unknown(self) -> bool:
        """Whether it is a published table without a column of launches."""
        imported = self.sweep.get("imported") or {}
        return imported.get("format") == "table" and "replicate" not in imported["mapping"]

    def label(self, config: Json) -> str:
        """A config as tables name it: its alternatives in the order of the axes, or its name."""
        choices = [str(config["choices"][axis]) for axis in self.axes if axis in config["choices"]]
        return " / ".join(choices) or str(config["name"])

    def said(self, config: Json) -> str:
        """A config as a headline names it."""
        pairs = [f"{axis}={config['choices'][axis]}" for axis in self.axes if axis in config["choices"]]
        return ", ".join(pairs) or str(config["name"])

    def runs(self, hardware: str, level: str | None = None, workload: str | None = None) -> list[tuple[Json, Json]]:
        """Trials with their runs that may be ranked, at a level of a workload (the objective's); no holdout runs."""
        return [
            (trial, run)
            for trial in self.trials
            for run in trial["runs"]
            if trial["hardware"] == hardware
            and not trial.get("holdout")
            and trial["status"] == "ok"
            and run["verdict"]["status"] != "invalid"
            and run["workload"]["name"] == (workload or self.workload)
            and (level == "*" or level_label(run["level"]) == (level or self.level))
        ]

    def values(self, hardware: str, metric: str, level: str | None = None) -> dict[str, list[float]]:
        """A metric of each launch by the config's label; a launch without it, or with nothing of it, has none."""
        found: dict[str, list[float]] = {}
        for trial, run in self.runs(hardware, level):
            value = metric_of(run, metric)
            if value:
                found.setdefault(self.label(trial["config"]), []).append(value)
        return found

    def means(self, hardware: str, metric: str, level: str | None = None) -> dict[str, float]:
        """The geometric mean over launches of each config."""
        return {label: geometric(values) for label, values in self.values(hardware, metric, level).items()}

    def config(self, hardware: str, label: str) -> Json:
        """The config with this label."""
        return next(
            trial["config"]
            for trial in self.trials
            if trial["hardware"] == hardware and self.label(trial["config"]) == label
        )

    def baseline(self, hardware: str) -> tuple[str, float, str | None]:
        """What gains are against: its words, its value, and its label where it is a config."""
        means = self.means(hardware, self.metric)
        for name in self.baselines:
            for trial in self.trials:
                label = self.label(trial["config"])
                if trial["hardware"] == hardware and trial["config"]["name"] == name and label in means:
                    return name, means[label], label
        return "the median of the configs tried", median(means.values()), None

    def baseline_phrase(self, hardware: str) -> str:
        """What sentences call that which gains are against."""
        words, *_ = self.baseline(hardware)
        return "the engine's defaults" if words == "defaults" else words

    def spread(self, hardware: str) -> tuple[float | None, int]:
        """The pooled standard deviation of log objective between launches of a config, and its degrees of freedom."""
        return pooled(self.values(hardware, self.metric).values())

    def half(self, hardware: str, n: int) -> float | None:
        """Half the 95% interval of a log mean over n launches; None where none is stated."""
        deviation, freedom = self.spread(hardware)
        if deviation is None:
            return None
        reach = float(stats.t.ppf(0.975, freedom)) * deviation
        return reach / math.sqrt(n) if reach <= WIDEST else None

    def group(self, hardware: str) -> list[str]:
        """The labels not shown to be worse than the best, best first; by margin where nothing was repeated."""
        values = self.values(hardware, self.metric)
        means = self.means(hardware, self.metric)
        order = sorted(means, key=lambda label: -means[label])
        deviation, freedom = self.spread(hardware)
        if deviation is None or self.half(hardware, 1) is None:
            return [label for label in order if abs(means[label] / means[order[0]] - 1) <= self.margin]
        best, left_out = order[0], len(order)
        for place in range(len(order), 1, -1):
            label = order[place - 1]
            behind = math.log(means[best] / means[label])
            error = deviation * math.sqrt(1 / len(values[best]) + 1 / len(values[label]))
            critical = float(stats.studentized_range.ppf(0.95, place, freedom))
            if not (behind > math.log1p(self.margin) and behind * math.sqrt(2) / error > critical):
                break
            left_out = place - 1
        return order[:left_out]


def pooled(groups: Iterable[Sequence[float]]) -> tuple[float | None, int]:
    """The standard deviation of logarithms within groups, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for values in groups:
        logs = [math.log(value) for value in values]
        squares += sum((log - fmean(logs)) ** 2 for log in logs)
        freedom += len(logs) - 1
    return (math.sqrt(squares / freedom) if freedom else None), freedom


def level_label(level: Mapping[str, Any]) -> str:
    """A load level's name."""
    if level.get("label"):
        return str(level["label"])
    if level.get("concurrency") is not None:
        return f"concurrency={level['concurrency']}"
    return f"rate={level['rate_per_s']:g}/s"


def metric_of(run: Json, metric: str) -> float | None:
    """A run's metric by its column's name."""
    summary = run["summary"]
    if metric in summary and not isinstance(summary[metric], dict):
        return summary[metric]  # type: ignore[no-any-return]
    if metric == "energy_j_per_output_tok":
        energy = run.get("energy") or {}
        return energy.get("energy_j_per_output_tok")
    found = re.fullmatch(r"(.+)_(mean|p25|p50|p75|p90|p95|p99)", metric)
    if found and isinstance(summary.get(found[1]), dict):
        return summary[found[1]].get(found[2])  # type: ignore[no-any-return]
    return None
