"""Pages of a pooling model: what is said in place of the speed of tokens, and no course where there is one moment."""

import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from tests.archive_factory import make_archive

from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.load.interactivity import most_input
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.requests import over_time

TEXTS = {"kind": "pooling", "name": "texts", "endpoint": "embeddings", "input_tokens": 128}


@pytest.fixture
def view(tmp_path: Path) -> SweepView:
    """A sweep whose requests were texts to be read, of which the engine was looked at once in each trial."""
    archive = make_archive(tmp_path / "20261120-220000-texts", axes={"max_num_seqs": [8, 64]}).path
    record = json.loads((archive / "sweep.json").read_text())
    record["spec"]["workloads"][0]["workload"] = TEXTS
    record["spec"] |= {"slo": {}, "quality": False, "objective": {"metric": "input_tok_per_s"}}
    (archive / "sweep.json").write_text(json.dumps(record))
    for path in (archive / "trials").glob("*.json"):
        trial = json.loads(path.read_text())
        for run in trial["runs"]:
            run["workload"], run["slo"] = TEXTS, {}
            run["summary"] |= {"output_tok_per_s": None, "ttft_s": {"n": 0}, "tpot_s": {"n": 0}}
        if trial["runs"]:
            series = trial["series"]
            begun_s = trial["runs"][0]["measured_from_s"]
            moment = next(index for index, t_s in enumerate(series["t_s"]) if t_s >= begun_s)
            series["t_s"] = series["t_s"][moment : moment + 1]
            series["columns"] = {name: values[moment : moment + 1] for name, values in series["columns"].items()}
        path.write_text(json.dumps(trial))
    return open_archive(archive)


def test_most_input_is_that_of_the_records(view: SweepView, tmp_path: Path) -> None:
    """Its config, level, throughput and latency are the best geometric means over the launches of each config."""
    speeds: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for path in (tmp_path / "20261120-220000-texts" / "trials").glob("*.json"):
        trial: dict[str, Any] = json.loads(path.read_text())
        for run in trial["runs"]:
            if trial["hardware"] == view.hardware[0] and run["verdict"]["status"] != "invalid":
                key = (str(trial["config"]["flags"]["max_num_seqs"]), run["level_label"])
                figures = run["summary"]["input_tok_per_s"], run["summary"]["latency_s"]["p50"]
                speeds.setdefault(key, []).append(figures)
    means = {key: tuple(map(geometric_mean, zip(*own, strict=True))) for key, own in speeds.items()}
    label, level = max(means, key=lambda key: means[key][0])
    speed, latency_s = means[label, level]

    said = "".join(part if isinstance(part, str) else str(*part.values()) for part in most_input(view).parts)
    first = said.partition(". On ")[0]
    numbers = [float(text.replace(",", "")) for text in re.findall(r"[\d,]+\.?\d*(?= tok/s| ms)", first)]

    assert f"highest with {label} at {level}:" in first
    assert [speed, latency_s * 1000] == pytest.approx(numbers, rel=1e-3)


def test_one_moment_is_no_course(view: SweepView) -> None:
    """A run of less than two looks at the engine has no figure of its queue."""
    assert view.series.height
    assert over_time(view, rank(view, view.hardware[0])).is_empty()
