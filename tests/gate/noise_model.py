"""Noise of recorded launches, fitted for the judge of the gate: it reads the raw JSON and shares no code with the gate.

A launch's log figures are the config's mean, a deviation of all figures together that is drawn from the recorded ones,
a factor by which the config's noise differs from the others', and a shift that all launches of a block share.
"""

import io
import json
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard
from scipy.special import polygamma

LANDSCAPES = Path(__file__).parents[2] / "analysis" / "landscapes"


@dataclass(frozen=True)
class Recorded:
    """Launches of one archive: `figures` names the columns of `values` (log), a row for each launch; nan: no figure."""

    figures: tuple[tuple[str, str, str], ...]
    """Workload, level, metric."""
    config: np.ndarray
    config_class: np.ndarray
    block: np.ndarray
    values: np.ndarray


def recorded(name: str) -> Recorded:
    """The launches of a packed archive."""
    raw = zstandard.ZstdDecompressor().stream_reader((LANDSCAPES / f"{name}.tar.zst").read_bytes()).read()
    rows: list[tuple[str, str, int, dict[tuple[str, str, str], float]]] = []
    with tarfile.open(fileobj=io.BytesIO(raw)) as pack:
        for member in pack.getmembers():
            if "trials/" not in member.name or not member.name.endswith(".json"):
                continue
            file = pack.extractfile(member)
            assert file is not None
            trial = json.loads(file.read())
            if trial["status"] != "ok" or trial.get("holdout"):
                continue
            found = {}
            for run in trial["runs"]:
                if run["verdict"]["status"] == "invalid":
                    continue
                place = (run["workload"]["name"], run["level_label"])
                summary = run["summary"]
                if "concurrency" in run["level"]:
                    found[(*place, "output_tok_per_s")] = summary["output_tok_per_s"]
                found[(*place, "ttft_s_p95")] = summary["ttft_s"]["p95"]
                found[(*place, "tpot_s_p95")] = summary["tpot_s"]["p95"]
            rows.append((trial["config"]["config_id"], trial["config_class"], trial["replicate"], found))
    figures = tuple(dict.fromkeys(figure for row in rows for figure in row[3]))
    values = np.array([[np.log(row[3].get(figure, np.nan)) for figure in figures] for row in rows])
    return Recorded(
        figures=figures,
        config=np.array([row[0] for row in rows]),
        config_class=np.array([row[1] for row in rows]),
        block=np.array([row[2] for row in rows]),
        values=values,
    )


@dataclass(frozen=True)
class NoiseModel:
    """How launches of a landscape vary."""

    figures: tuple[tuple[str, str, str], ...]
    deviations: np.ndarray
    """Rows of log deviations of all figures together, scaled to the population's."""
    config_scale: float
    """Standard deviation of the log factor by which a config's noise differs."""
    block: np.ndarray
    """Standard deviation of a block's shift, for each figure."""

    def configs(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """The noise factor of each of so many configs."""
        return np.exp(draw.normal(0, self.config_scale, count))

    def launches(self, scales: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
        """Log deviations of `count` launches of each config: configs × launches × figures."""
        many = len(self.deviations)
        rows = self.deviations[draw.integers(many, size=(len(scales), count))]
        # Silverman's smoothing, of all figures together: no two launches are ever the same.
        width = 1.06 * many**-0.2
        jitter = width / np.sqrt(many) * draw.normal(size=(len(scales), count, many)) @ self.deviations
        own = (rows + jitter) / np.sqrt(1 + width**2) * scales[:, None, None]
        return np.asarray(own + draw.normal(0, self.block, (1, count, len(self.figures))))


def noise_model_of(launches: Recorded) -> NoiseModel:
    """The model of recorded launches, each config launched about as often."""
    by_config = defaultdict(list)
    for config, values in zip(launches.config, launches.values, strict=True):
        by_config[config].append(values)
    own = [np.array(rows) for rows in by_config.values() if len(rows) > 1]
    centred = [rows - np.nanmean(rows, axis=0) for rows in own]
    scaled = [rows * np.sqrt(len(rows) / (len(rows) - 1)) for rows in centred]
    whole = np.concatenate(scaled)
    # Of a normal population, the log variance of n values has the variance trigamma((n − 1)/2); what is beyond it is
    # between configs. Variances are of logs, hence the quarter.
    spread = np.array([np.nanvar(rows, axis=0, ddof=1) for rows in own])
    expected = np.mean([polygamma(1, (len(rows) - 1) / 2) for rows in own])
    excess = float(np.mean(np.nanvar(np.log(spread), axis=0, ddof=1) - expected))
    shift = []
    for number in np.unique(launches.block):
        rows = np.concatenate([rows[number : number + 1] for rows in centred if len(rows) > number])
        shift.append(np.nanmean(rows, axis=0))
    between = np.nanvar(np.array(shift), axis=0, ddof=1) - np.nanvar(whole, axis=0) / len(own)
    return NoiseModel(
        figures=launches.figures,
        deviations=whole[~np.isnan(whole).any(axis=1)],
        config_scale=np.sqrt(max(excess, 0.0) / 4),
        block=np.sqrt(np.maximum(between, 0.0)),
    )
