"""Nodes side by side on the trials page, and launches that compare nodes kept out of what is said of configs."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from archive_factory import GPUS, START, make_archive, node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.gate.side import read_side
from tokenpeak.ranking.objective import objective_value
from tokenpeak.report import node_screening, open_archive
from tokenpeak.report.blocks import Sentence, Table, plain
from tokenpeak.report.overview import cost_of_sweep
from tokenpeak.report.ranking import rank
from tokenpeak.report.view import SweepView
from tokenpeak.search.landscape import landscapes_of
from tokenpeak.spec.node_screening import NodeScreeningSpec
from tokenpeak.store.archive import Archive

AXES: dict[str, list[object]] = {"max_num_seqs": [8, 64]}
SLOW = "node-3"


def screened_archive(path: Path) -> Archive:
    """A sweep of two configs on a node, after a screening of six, of which the third is a tenth slow at 300 W."""
    archive = make_archive(path, axes=AXES, gpus=GPUS[:1], replicates=2, seconds=2)
    spec = sweep_spec(AXES).model_copy(update={"node_screening": NodeScreeningSpec()})
    nodes = [node_facts(f"node-{number}", GPUS[0]) for number in range(1, 7)]
    plan = plan_of(spec, nodes[0])
    lots = np.random.default_rng(3)
    for number, (node, launch) in enumerate(((node, launch) for launch in (0, 1) for node in nodes), start=101):
        speed = (0.9 if node.node == SLOW else 1.0) * float(np.exp(lots.normal(0, 0.005)))
        trial, _ = trial_record(
            spec, sweep_id=path.name, number=number, node=node, planned=plan.feasible[1], replicate=launch, noise=0,
            started_at=START + timedelta(seconds=90 * number), seconds=2,
        )  # fmt: skip
        summary = trial.runs[0].summary
        fewer = {"output_tok_per_s": (summary.output_tok_per_s or 0.0) * speed, "windowed_output_tok_per_s": ()}
        run = trial.runs[0].model_copy(update={"summary": summary.model_copy(update=fewer)})
        archive.write_trial(trial.model_copy(update={"node_screening": True, "runs": (run,)}), None, "")
    raw = json.loads((path / "sweep.json").read_text())
    raw["spec"]["node_screening"] = {"outliers": "exclude", "launches": 2}
    raw["plans"][0]["nodes"] = [node.node for node in nodes]
    raw["nodes"] = [node.model_dump(mode="json") for node in nodes]
    raw["nodes"][2]["gpus"][0]["power_limit_w"] = 300
    (path / "sweep.json").write_text(json.dumps(raw))
    return archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The archive, made once."""
    return screened_archive(tmp_path_factory.mktemp("screened") / "a")


@pytest.fixture(scope="module")
def view(archive: Archive) -> SweepView:
    """The archive as pages see it."""
    return open_archive(archive.path)


def test_the_slow_node_is_warned_of_with_its_cause(view: SweepView) -> None:
    """The answer counts, a warning names the node with its figure and its cause and says what became of it."""
    sentences = [block for block in node_screening.blocks(view) if isinstance(block, Sentence)]
    words = [plain(block.parts) for block in sentences]

    assert "Of 6 nodes with 1x NVIDIA A100-SXM4-80GB, 1 is slow or throttling" in words[0]
    assert "warning" == sentences[1].tone
    assert words[1].startswith(f"{SLOW} is ")
    assert "slow: power limit 300 W, 400 W on the others" in words[1]
    assert words[1].endswith("No config was tried there.")
    assert "6 nodes with 2 launches each show a node that is" in words[2]


def test_the_table_has_a_row_a_node_and_the_other_a_row_a_launch(view: SweepView) -> None:
    """The slowest node is first, a tenth below the median with an interval around it; each launch is there."""
    nodes, launches = (block for block in node_screening.blocks(view) if isinstance(block, Table))
    titles = [column.title for column in nodes.columns]
    first = dict(zip(titles, nodes.rows[0], strict=True))
    ratio, low, high = (first[name]["value"] for name in ("Speed against the median", "From", "To"))

    assert (6, 12) == (len(nodes.rows), len(launches.rows))
    assert (SLOW, "slow") == (first["Node"]["text"], first["Verdict"]["text"])
    assert -12 < low < ratio < high < -8
    assert pytest.approx(-10, abs=1) == ratio
    assert 300 == first["Power limit"]["value"]


def test_no_config_is_judged_by_launches_that_compare_nodes(archive: Archive, view: SweepView, tmp_path: Path) -> None:
    """Ranking, gate and replay are those of the same sweep without its screening."""
    alone = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], replicates=2, seconds=2)
    other = open_archive(alone.path)
    columns = ["config_id", "objective", "n", "launches", "rank"]
    screened, plain_ = (rank(each, each.hardware[0]).frame.select(columns).rows() for each in (view, other))
    sweep = archive.read_sweep()
    (known,) = landscapes_of("a", sweep, archive.trials(), view.spec)

    assert plain_ == screened
    assert other.runs.height == view.runs.height
    assert {2} == {len(launches) for launches in known.launches.values()}
    assert read_side([alone.path]).trials.height == read_side([archive.path]).trials.height
    assert {None} == {objective_value(trial, view.spec) for trial in archive.trials() if trial.node_screening}


def test_what_the_screening_took_is_in_the_cost(view: SweepView) -> None:
    """Its launches count as trials of their own and their time as the sweep's."""
    pairs = dict(cost_of_sweep(view).pairs)

    assert "12" == pairs["Trials to compare nodes"]
    assert "4 ok" == pairs["Trials"]
    assert float(view.screening["duration_s"].sum()) / 3600 < float(pairs["GPU-hours"])


def test_a_sweep_without_a_screening_has_no_such_section(tmp_path: Path) -> None:
    """Most sweeps compare no nodes: nothing is shown."""
    plain_sweep = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)

    assert () == node_screening.blocks(open_archive(plain_sweep.path))
