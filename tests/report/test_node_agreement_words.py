"""On how many nodes a gain was seen, and who disagrees or is slow: each figure recomputed from the raw trials."""

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.overview import headline
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.site.notebook_runner import execute

NODES = ("node-1", "node-2", "node-3")


def three_nodes(folder: Path, *, slow: dict[str, float]) -> Path:
    """Two configs launched three times on three nodes; each node runs the faster one at `slow` times its speed."""
    gpus = ["NVIDIA L4"] * 3
    archive = make_archive(folder, gpus=gpus, axes={"max_num_seqs": [8, 64]}, replicates=3, seconds=1, noise=0.004)
    path = archive.path / "sweep.json"
    sweep = json.loads(path.read_text())
    names = {
        each["config"]["flags"]["max_num_seqs"]: each["config"]["name"]
        for plan in sweep["plans"]
        for each in plan["feasible"]
    }
    sweep["spec"]["search"]["baseline"] = [names[8]]
    sweep["plans"] = [sweep["plans"][0] | {"nodes": list(NODES)}]
    path.write_text(json.dumps(sweep))
    for trial_path, trial in trials_of(archive.path):
        if trial["config"]["name"] != names[64]:
            continue
        for run in trial["runs"]:
            run["summary"]["output_tok_per_s"] *= slow.get(trial["node"], 1.0)
        trial_path.write_text(json.dumps(trial))
    return archive.path


def trials_of(archive: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The raw trials."""
    return [(path, json.loads(path.read_text())) for path in sorted(archive.glob("trials/*.json"))]


def gains_of(archive: Path) -> dict[str, float]:
    """What 64 sequences give over 8 on each node, in percent: geometric means of the closed loop's throughput."""
    logs: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _, trial in trials_of(archive):
        seqs = trial["config"]["flags"]["max_num_seqs"]
        logs[trial["node"], seqs].append(math.log(trial["runs"][0]["summary"]["output_tok_per_s"]))
    means = {key: statistics.fmean(values) for key, values in logs.items()}
    return {node: 100 * math.expm1(means[node, 64] - means[node, 8]) for node in NODES if (node, 64) in means}


def sentences_of(archive: Path) -> str:
    """What the headline's cautions and qualifications say."""
    view = open_archive(archive)
    (hardware,) = view.hardware
    ranked = rank(view, hardware)
    return " ".join(each.words() for each in (*headline.cautions(view, ranked), *headline.qualifications(view, ranked)))


def test_nodes_that_agree_are_counted_with_their_gains(tmp_path: Path) -> None:
    """From the least to the most that any of the three shows; nobody disagrees."""
    archive = three_nodes(tmp_path / "a", slow={})
    gains = gains_of(archive)
    said = sentences_of(archive)

    assert f"It was launched on 3 of 3 nodes; over {baseline_of(archive)} it gives" in said
    assert f"{min(gains.values()):+.0f}% to {max(gains.values()):+.0f}% on 3 that launched both" in said
    assert "disagree" not in said


def test_a_node_that_disagrees_is_named(tmp_path: Path) -> None:
    """By name, with its own gain; the others' gains stand without it."""
    archive = three_nodes(tmp_path / "a", slow={"node-3": 0.85})
    gains = gains_of(archive)
    said = sentences_of(archive)

    assert f"node-3 ({gains['node-3']:+.0f}%) disagrees" in said
    assert "on 2 that launched both" in said


def baseline_of(archive: Path) -> str:
    """The baseline's name as the spec has it."""
    (name,) = json.loads((archive / "sweep.json").read_text())["spec"]["search"]["baseline"]
    return str(name)


def test_the_rankings_notebook_runs_where_nodes_launched_unlike_configs(tmp_path: Path) -> None:
    """Means without what nodes differ by are not those of the launches; the notebook's own checks know that."""
    archive = three_nodes(tmp_path / "a", slow={})
    first = next(path for path, trial in trials_of(archive) if trial["node"] == "node-3")
    first.unlink()

    executed = execute(paths.NOTEBOOKS / "ranking.ipynb", tmp_path / "out.ipynb", {"archive": str(archive)})

    assert any(cell.outputs for cell in executed.cells if cell.cell_type == "code")
