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
        for member in packed:
            if (content := packed.extractfile(member)) is not None:
                (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / member.name).write_bytes(content.read())
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

    @cached_property
    def class_of(self) -> dict[str, str]:
        """The class of each config by its id: configs of one cannot differ under the load."""
        plans = self.sweep["plans"]
        return {e["config"]["config_id"]: e["config_class"] or "" for plan in plans for e in plan["feasible"]}

    @cached_property
    def labels(self) -> dict[str, str]:
        """The label that stands for a class, the first launched one's, by the config's own label."""
        first: dict[str, str] = {}
        found: dict[str, str] = {}
        for trial in self.trials:
            config = trial["config"]
            own = self._label(config)
            has = any(each["verdict"]["status"] != "invalid" for each in trial["runs"]) and not trial.get("holdout")
            if own in found or not has:
                continue
            of = self.class_of.get(config["config_id"]) or config["config_id"]
            found[own] = first.setdefault(f"{trial['hardware']} {of}", own)
        return found

    def label(self, config: Json) -> str:
        """A config as tables name it; of a class the label that stands for it."""
        own = self._label(config)
        return self.labels.get(own, own)

    def _label(self, config: Json) -> str:
        """A config's alternatives in the order of the axes, or its name."""
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

    def of(self, hardware: str, label: str | None) -> float:
        """The mean of a config."""
        return self.means(hardware, self.metric)[str(label)]

    @property
    def places(self) -> list[str]:
        """The workloads of the sweep."""
        return [plan["workload"]["name"] for plan in self.sweep["spec"]["workloads"]]

    def current(self, hardware: str) -> str | None:
        """What runs now, where it gave a result: production, or what the spec names, else the engine's defaults."""
        names = [*(name for name in self.baselines if name != "defaults"), "defaults"]
        known = {t["config"]["name"]: self.label(t["config"]) for t in self.trials if t["hardware"] == hardware}
        means = self.means(hardware, self.metric)
        return next((known[name] for name in names if known.get(name) in means), None)

    def broken(self, hardware: str) -> set[str]:
        """The configs of which a launch broke the SLO."""
        return {self.label(trial["config"]) for trial, run in self.runs(hardware) if run["slo_met"] is False}

    def excess(self, hardware: str) -> dict[str, float]:
        """The worst latency over its limit in any launch of each config."""
        worst: dict[str, float] = {}
        for trial, run in self.runs(hardware):
            for key, limit in self.sweep["spec"]["slo"].items():
                value = metric_of(run, key.removesuffix("_ms").replace("_p", "_s_p")) if limit is not None else None
                if value is not None:
                    label = self.label(trial["config"])
                    worst[label] = max(worst.get(label, 0.0), value * 1000 / limit)
        return worst

    def not_compared(self, hardware: str) -> set[str]:
        """The configs of other number formats than what runs now; nobody compared the answers of these archives."""
        named = [*(name for name in self.baselines if name != "defaults"), "defaults"]
        planned = [e["config"] for p in self.sweep["plans"] if p["hardware"] == hardware for e in p["feasible"]]
        beside = next((c for name in named for c in planned if c["name"] == name), None)
        plain = formats(beside["flags"]) if beside else ("", "")
        labels = set(self.means(hardware, self.metric))
        return {label for label in labels if formats(self.config(hardware, label)["flags"]) != plain}

    def may_run(self, hardware: str) -> list[str]:
        """The configs that hold the SLO (with 95% confidence where any does) and answer as what runs now."""
        found = set(self.means(hardware, self.metric)) - self.broken(hardware) - self.not_compared(hardware)
        if any(limit is not None for limit in self.sweep["spec"]["slo"].values()):
            proven = {label for label in found if self.confidence(hardware, label) >= 0.95}
            found = proven | (found & {str(self.current(hardware))}) if proven else found
        return sorted(found)

    def confidence(self, hardware: str, label: str) -> float:
        """That the SLO holds by the requests of all launches of a config, where they were counted; else 0."""
        own = [run["summary"] for trial, run in self.runs(hardware) if self.label(trial["config"]) == label]
        found = []
        for key, limit in self.sweep["spec"]["slo"].items():
            if limit is None:
                continue
            name = key.removesuffix("_ms").replace("_p", "_s_p")
            within = [(each.get("within_limits") or {}).get(name) for each in own]
            if None in within:
                return 0.0
            held, sent = sum(within), sum(each["requests_sent"] for each in own)
            found.append(float(stats.beta.sf(int(name.rpartition("_p")[2]) / 100, held, sent - held + 1)))
        return min(found, default=0.0)

    def group(self, hardware: str, among: Iterable[str] | None = None) -> list[str]:
        """The labels not shown to be worse than the best, best first; by margin where nothing was repeated."""
        values = self.values(hardware, self.metric)
        means = self.means(hardware, self.metric)
        means = means if among is None else {label: means[label] for label in among}
        order = sorted(means, key=lambda label: -means[label])
        if not order:
            return []
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


def formats(flags: Json) -> tuple[str, str]:
    """The number formats of weights and KV cache; 16 bits are nothing."""
    cache = str(flags.get("kv_cache_dtype") or "auto")
    return str(flags.get("quantization") or ""), "" if cache in ("auto", "bfloat16", "float16") else cache


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
