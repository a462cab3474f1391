"""Published claims on trials of one's own: a claims file names the sweeps that measure the same."""

import json
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.checks.catalogue import read_claims
from tokenpeak.report import checks, open_archive
from tokenpeak.report.view import SweepView

V100 = "v100-deepseek-r1-32b"
AXES: dict[str, list[object]] = {
    "gpu_memory_utilization": [0.85, 0.9, 0.95],
    "max_num_seqs": [32, 128],
    "max_model_len": [8192, 16384, 32768],
}


def own(path: Path, name: str, axes: dict[str, list[object]]) -> SweepView:
    """A simulated sweep of this name on four V100."""
    archive = make_archive(path, axes=axes, gpus=["Tesla V100-PCIE-32GB"], gpus_a_node=4, seconds=2)
    record = json.loads((archive.path / "sweep.json").read_text())
    (archive.path / "sweep.json").write_text(json.dumps(record | {"name": name}))
    return open_archive(archive.path)


def test_the_claims_are_judged_on_the_sweeps_own_trials(tmp_path: Path) -> None:
    """All V100 claims, each by figures of this sweep: its own best, and launches that ran without eager mode."""
    view = own(tmp_path / "a", V100, AXES)
    found = {each.claim.id: each.outcome for each in checks.judged(view)}
    best = max(view.objective_runs()["output_tok_per_s"].to_list())

    assert {claim.id for claim in read_claims(paths.ARCHIVES / V100 / "claims.yml")} == set(found)
    assert f"Rank 1: {best:.4g};" in found["C7"].computation[0]
    assert "contradicted" == found["C7"].verdict == found["C25"].verdict
    assert "18 without enforce_eager, of which 18 ran" in found["C25"].computation[0]


@pytest.mark.parametrize("name", ["another", "h200-llama70b-fp8"])
def test_a_sweep_that_no_claims_file_names_has_no_claims(tmp_path: Path, name: str) -> None:
    """Neither one of another name nor of a publication whose claims name no sweep."""
    assert [] == checks.judged(own(tmp_path / "a", name, {"max_num_seqs": [32, 128]}))


def test_a_claim_about_settings_that_the_sweep_lacks_is_undecided(tmp_path: Path) -> None:
    """A copy of the sweep with fewer axes still has its page: what cannot be judged says which setting is not there."""
    found = {each.claim.id: each.outcome for each in checks.judged(own(tmp_path / "a", V100, {"max_num_seqs": [32]}))}

    assert {"undecided"} == {found[name].verdict for name in ("C1", "C5", "C6", "C29")}
    assert "'gpu_memory_utilization'" in found["C6"].computation[0]
