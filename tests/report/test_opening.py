"""Opening archives: what a place may be, and what is asked otherwise than the sweep did, judged against raw JSON."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from archive_factory import START, make_archive
from commands import typed
from tokenpeak import paths
from tokenpeak.errors import ArchiveError, InputError
from tokenpeak.report import open_archive, open_archives
from tokenpeak.store.pack import pack

H200 = paths.ARCHIVES / "h200-llama70b-fp8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps, the second a day later, on two kinds of hardware each."""
    path = tmp_path_factory.mktemp("several")
    axes = {"max_num_seqs": [8, 64]}
    for days, name in enumerate(("first", "second")):
        make_archive(path / name, axes=axes, seconds=3, started_at=START + timedelta(days=days), seed=days)
    return path


def raw_trials(archive: Path) -> list[dict[str, Any]]:
    """The trials' files, in the order of their names."""
    return [json.loads(path.read_bytes()) for path in sorted((archive / "trials").glob("*.json"))]


def test_a_place_is_a_folder_a_packed_archive_or_several(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sweep comes out of each, and of several the newest."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / "state"))
    packed = pack(folder / "second", tmp_path / "second.tar.zst")
    second = folder / "second"
    found = [open_archive(place) for place in (second, str(second), packed, folder, [folder / "first", packed])]

    assert {json.loads((second / "sweep.json").read_text())["sweep_id"]} == {sweep.sweep_id for sweep in found}
    assert all(found[0].runs.equals(sweep.runs) for sweep in found[1:])


def test_a_shipped_archive_is_opened_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the guide's table names it, unless something of that name lies in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / "state"))

    assert open_archive(paths.LANDSCAPES / "search-cpu.tar.zst").sweep_id == open_archive("search-cpu").sweep_id
    (tmp_path / "search-cpu").mkdir()
    with pytest.raises(ArchiveError, match=r"No archive at .*search-cpu"):
        open_archive("search-cpu")


def test_a_place_without_an_archive_is_an_error(tmp_path: Path) -> None:
    """A folder that holds no sweep, and no place at all, are said."""
    with pytest.raises(ArchiveError, match="No archive at"):
        open_archive(tmp_path)
    with pytest.raises(InputError, match="names nothing"):
        open_archives([])


def test_another_objective_is_read_from_the_runs(folder: Path) -> None:
    """Each trial's objective is then that metric of its raw file, and configs are ranked by it."""
    workload, level = open_archive(folder / "first").spec.objective_run()
    sweep = open_archive(folder / "first", objective="ttft_s_p95")
    expected = {
        trial["trial_id"]: next(
            run["summary"]["ttft_s"]["p95"]
            for run in trial["runs"]
            if (run["workload"]["name"], run["level_label"]) == (workload, level)
        )
        for trial in raw_trials(folder / "first")
        if trial["status"] == "ok"
    }
    found = sweep.trials.filter(status="ok").select("trial_id", "objective").rows()

    assert expected == dict(found)
    assert not sweep.higher_is_better


def test_one_kind_of_hardware(folder: Path) -> None:
    """Every frame and the record are then of it alone."""
    whole = open_archive(folder / "first")
    one = whole.hardware[1]
    sweep = open_archive(folder / "first", hardware=one)
    expected = [trial["trial_id"] for trial in raw_trials(folder / "first") if trial["hardware"] == one]

    assert (one,) == sweep.hardware
    assert expected == sweep.trials["trial_id"].sort().to_list()
    assert {*expected} >= set(sweep.series["trial_id"]) | set(sweep.requests.collect()["trial_id"])
    assert [one] == [plan.hardware for plan in sweep.record.plans]


def test_another_slo_is_judged_by_recorded_percentiles(folder: Path) -> None:
    """Each run is then within the limit that was given, or not, by the percentile of its raw file."""
    recorded = {
        (trial["trial_id"], run["run_index"]): run["summary"]["ttft_s"]["p95"]
        for trial in raw_trials(folder / "first")
        for run in trial["runs"]
    }
    limit_ms = 1000 * sorted(recorded.values())[len(recorded) // 2]
    sweep = open_archive(folder / "first", slo=f"ttft_p95_ms={limit_ms:.3f}")
    found = {(trial, index): met for trial, index, met in sweep.runs.select("trial_id", "run_index", "slo_met").rows()}
    above = {key for key, seconds in recorded.items() if seconds > limit_ms / 1000 + 1e-6}

    assert 0 < len(above) < len(recorded)
    assert above == {key for key in recorded if found[key] is False}
    assert sweep.slo_words.startswith("TTFT p95 ≤ ")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"objective": "ttft_p95"}, "objective is 'ttft_p95'. Did you mean"),
        ({"workload": "rag"}, "workload is 'rag'. "),
        ({"level": "rate=3/s"}, r"level is 'rate=3/s'. Did you mean rate=2/s"),
        ({"hardware": "H200"}, "hardware is 'H200'. .*1x NVIDIA H200"),
        ({"slo": "ttft_p98_ms=1"}, "slo has 'ttft_p98_ms=1'. Did you mean ttft_p9"),
        ({"slo": "ttft_p99_ms"}, "Write ttft_p99_ms=LIMIT"),
        ({"slo": "ttft_p99_ms=-3"}, "slo has ttft_p99_ms=-3. A limit is in milliseconds, > 0"),
        ({"pue": 0.9}, "pue is 0.9: kWh at the meter per kWh, ≥ 1"),
        ({"price_per_hour": -1.0}, "price_per_hour is -1.0"),
        ({"price_per_hours": 1}, "No parameter 'price_per_hours'. Did you mean price_per_hour"),
    ],
)
def test_what_a_sweep_does_not_have_is_refused(asked: dict[str, Any], said: str) -> None:
    """A wrong name or value is an input error with the choices."""
    with pytest.raises(InputError, match=said):
        open_archive(H200, **asked)


def test_parameters_are_a_table() -> None:
    """Each parameter has a row with its value, unit, choices, and who says so."""
    rows = {row["parameter"]: row for row in open_archive(H200, pue=1.1).parameters.iter_rows(named=True)}

    assert ("1.1", "you") == (rows["pue"]["value"], rows["pue"]["said by"])
    assert ("max_rate_per_s", "the sweep") == (rows["objective"]["value"], rows["objective"]["said by"])
    assert "rate=1.5/s" in rows["level"]["may be"]
    assert ("Changed for this report", "pue 1.1") in open_archive(H200, pue=1.1).facts()


def test_a_command_takes_a_shipped_archive_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its suffix and without, as pages of the documentation type it."""
    monkeypatch.chdir(tmp_path)

    for name in ("search-h100", "search-h100.tar.zst"):
        assert "NVIDIA H100" in typed("explain", name).stdout, name
