"""A simulated GPU that gets too hot under load: the run says so."""

import pytest
import yaml
from driven_home import SPEC, Home


@pytest.mark.e2e
def test_run_on_a_throttled_gpu_is_invalid(home: Home) -> None:
    """What the node's driver said while the run went on is a reason against it."""
    spec = {
        **SPEC,
        "axes": {"max_num_seqs": [8]},
        "fixed": {**SPEC["fixed"], "env": {"TOKENPEAK_SIM_FAULT": "throttle_after_s:8"}},  # type: ignore[dict-item]
        "workloads": [{**SPEC["workloads"][0], "levels": [{"concurrency": 4, "duration_s": 25}]}],  # type: ignore[index,dict-item]
    }
    (home.root / "analysis" / "sweeps" / "hot.yml").write_text(yaml.safe_dump(spec))
    done = home.run("sweep", "--inventory", "lone", "--sweep", "hot", "--no-report")
    (trial,) = home.trials(home.archives()[-1])
    verdict = trial["runs"][0]["verdict"]  # type: ignore[index]

    assert "ok" == trial["status"], done.stdout
    assert {0.0, 1.0} <= set(trial["series"]["columns"]["gpu0_slowed"])  # type: ignore[index]
    assert ("invalid", "clock_throttled") == (verdict["status"], verdict["reasons"][-1]["code"])
    assert verdict["reasons"][-1]["text"].startswith("GPU 0 was slowed down by its driver")
    assert "1 of 1 runs invalid" in done.stdout
