"""`tokenpeak gate` on archives: what it says, its exit statuses, and the files that it writes for CI."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from click.testing import CliRunner, Result

from archive_factory import START, make_archive
from tokenpeak.cli.gate import gate
from tokenpeak.report.site.cleaned_copy import cleaned_copy

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))
Trial = dict[str, Any]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights of the same sweep, with nothing between them but noise: two configs of one L4, six launches each."""
    folder = tmp_path_factory.mktemp("nights")
    for number, name in enumerate(("old", "new")):
        make_archive(
            folder / name,
            axes={"max_num_seqs": [8, 64]},
            gpus=("NVIDIA L4",),
            replicates=6,
            requests=200,
            seconds=1,
            seed=number,
            started_at=START + timedelta(days=number),
        )
    return folder


def changed(
    nights: Path,
    to: Path,
    change: Callable[[Trial], None],
    sweep: Callable[[Trial], None] | None = None,
    *,
    night: str = "new",
) -> Path:
    """A copy of a night whose trials were changed so, and its sweep where that is given."""
    for path in sorted((nights / night).rglob("*.json")):
        raw = json.loads(path.read_text())
        if path.parent.name == "trials":
            change(raw)
        elif path.name == "sweep.json" and sweep is not None:
            sweep(raw)
        target = to / path.relative_to(nights / night)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(raw))
    return to


def without(nights: Path, to: Path, night: str, gone: Callable[[Trial], bool]) -> Path:
    """A copy of a night without some of its trials."""
    copy = changed(nights, to, lambda trial: None, night=night)
    for path in copy.glob("trials/*.json"):
        if gone(json.loads(path.read_text())):
            path.unlink()
    return copy


def run(new: Path, old: Path, *options: str) -> Result:
    """`tokenpeak gate NEW --against OLD …`."""
    return CliRunner().invoke(gate, [str(new), "--against", str(old), *options])


def slower(trial: Trial, share: float = 0.5) -> None:
    """Throughput of the closed load falls by the share."""
    trial["runs"][0]["summary"]["output_tok_per_s"] *= 1 - share


def test_two_nights_of_the_same_are_tied(nights: Path, tmp_path: Path) -> None:
    """Nothing changed: exit status 0, everything tied, and the files say the same."""
    junit, summary, everything = (tmp_path / name for name in ("gate.xml", "gate.md", "gate.json"))

    result = run(
        nights / "new", nights / "old", "--junit", str(junit), "--markdown", str(summary), "--json", str(everything)
    )

    assert 0 == result.exit_code, result.output
    assert "0 regressed, 0 improved, 0 not comparable, 18 tied" in result.output
    SCHEMA.validate(junit)
    assert all("a tie may hide a change of up to" in each for each in (junit.read_text(), summary.read_text()))
    assert {"18 tied", "Gate: passed"} <= {word for word in ("18 tied", "Gate: passed") if word in summary.read_text()}
    found = json.loads(everything.read_text())
    assert (18, {"id"}) == (found["intervals"], {each["equal_by"] for each in found["comparisons"]})


def test_a_slower_engine_is_regressed(nights: Path, tmp_path: Path) -> None:
    """Half the throughput is a regression with its interval, in text, JUnit, Markdown and JSON; exit status 3."""
    new = changed(nights, tmp_path / "new", slower)
    junit, summary, everything = (tmp_path / name for name in ("gate.xml", "gate.md", "gate.json"))

    result = run(new, nights / "old", "--junit", str(junit), "--markdown", str(summary), "--json", str(everything))

    assert 3 == result.exit_code, result.output
    SCHEMA.validate(junit)
    failures = ET.parse(junit).getroot().findall(".//failure")
    assert 2 == len(failures)
    assert "Gate: not passed" in summary.read_text()
    regressed = [each for each in json.loads(everything.read_text())["comparisons"] if each["outcome"] == "regressed"]
    assert [("output_tok_per_s", 6, 6)] * 2 == [
        (each["metric"], each["old_launches"], each["new_launches"]) for each in regressed
    ]
    assert all(each["low"] < 0.5 < each["high"] < 0.8 for each in regressed)
    assert all(f"−{(1 - each['ratio']) * 100:.1f}%" in result.output for each in regressed)


def test_another_engine_build_is_compared_by_everything_else(nights: Path, tmp_path: Path) -> None:
    """Where the build is what changed, configs pair by their settings, and what differs in the environment is said."""

    def rebuilt(raw: Trial) -> None:
        for config in [raw["config"]] if "config" in raw else [each["config"] for each in raw["plans"][0]["feasible"]]:
            config |= {"config_id": config["config_id"][::-1], "engine": "next", "engine_version": "0.33.0"}

    def trial(raw: Trial) -> None:
        rebuilt(raw)
        raw["startup"]["engine_version"] = "0.33.0"

    def sweep(raw: Trial) -> None:
        rebuilt(raw)
        raw["nodes"][0]["gpus"][0]["driver"] = "590.10"

    new = changed(nights, tmp_path / "new", trial, sweep)

    result = run(new, nights / "old")

    assert 0 == result.exit_code, result.output
    assert "configs: 2 equal but for their engine build" in result.output
    for words in ("driver: 580.65.06 → 590.10", "engine version: 0.32.0 → 0.33.0", "engine build: not known → next"):
        assert words in result.output


def test_a_server_at_a_url_is_the_same_when_packed(nights: Path, tmp_path: Path) -> None:
    """An archive that was packed, in which the server's address is masked, is compared with one that was not."""
    address = "10.1.2.3:8000"

    def trial(raw: Trial) -> None:
        raw["node"] = address

    def sweep(raw: Trial) -> None:
        raw["nodes"][0] |= {"node": address, "source": "endpoint", "gpus": []}
        raw["plans"][0] |= {"hardware": f"server at {address}", "nodes": [address]}

    old, new = (changed(nights, tmp_path / night, trial, sweep, night=night) for night in ("old", "new"))
    cleaned_copy(old, tmp_path / "accepted", node_names=False)
    assert address not in (tmp_path / "accepted/sweep.json").read_text()

    assert "0 regressed, 0 improved, 0 not comparable, 18 tied" in run(new, tmp_path / "accepted").output
    assert "0 regressed, 0 improved, 0 not comparable, 18 tied" in run(new, old).output


def test_another_load_is_not_comparable(nights: Path, tmp_path: Path) -> None:
    """A load of the same name that asks for something else is not compared, and what it asks for is said."""

    def longer(trial: Trial) -> None:
        for each in trial["runs"]:
            each["workload"]["output_tokens"] = 64

    result = run(changed(nights, tmp_path / "new", longer), nights / "old")

    assert 4 == result.exit_code, result.output
    assert "it asks for something else: output_tokens 32 → 64" in result.output


def test_an_engine_that_crashes_is_regressed(nights: Path, tmp_path: Path) -> None:
    """A config that ran and whose every launch now fails by its own fault has regressed; one lost launch has not."""

    def crashed(trial: Trial) -> None:
        failure = {"phase": "engine_start", "cause": "crashed", "message": "It crashed.", "evidence": []}
        if trial["config"]["flags"]["max_num_seqs"] == 64:
            trial.update(status="failed", failure=failure, runs=[])
        elif trial["replicate"] == 0:
            trial.update(status="failed", failure=failure | {"cause": "node_unreachable"}, runs=[])

    junit = tmp_path / "gate.xml"

    result = run(changed(nights, tmp_path / "new", crashed), nights / "old", "--junit", str(junit))

    assert 3 == result.exit_code, result.output
    SCHEMA.validate(junit)
    assert "failed: crashed, in all launches of new" in result.output
    assert "4 regressed, 0 improved, 0 not comparable, 9 tied" in result.output


def test_a_config_that_only_one_side_has_is_said(nights: Path, tmp_path: Path) -> None:
    """A config that new did not launch is not comparable, unless only what both have is asked for."""

    def is_large(trial: Trial) -> bool:
        return bool(trial["config"]["flags"]["max_num_seqs"] == 64)

    less_new = without(nights, tmp_path / "new", "new", is_large)
    less_old = without(nights, tmp_path / "old", "old", is_large)

    assert 4 == run(less_new, nights / "old").exit_code
    assert "new planned it and did not launch it" in run(less_new, nights / "old").output
    assert 0 == run(less_new, nights / "old", "--common").exit_code
    assert "only in new    max_num_seqs=64" in run(nights / "new", less_old).output
    apart = run(less_new, without(nights, tmp_path / "large", "old", lambda trial: not is_large(trial)), "--common")
    assert 4 == apart.exit_code
    assert "nothing is compared: no config was launched on both sides" in apart.output


def test_pooling_models_are_compared_by_what_they_read(nights: Path, tmp_path: Path) -> None:
    """A load of a pooling model has no tokens of output: input tokens per second and the latency are its figures."""

    def pooled(trial: Trial) -> None:
        for run in trial["runs"]:
            asked = {"kind": "pooling", "name": "texts", "endpoint": "embeddings", "input_tokens": 128}
            run["workload"] = asked
            run["summary"] |= {"output_tok_per_s": 0.0, "ttft_s": {"n": 0}, "tpot_s": {"n": 0}}

    sides = [changed(nights, tmp_path / night, pooled, night=night) for night in ("new", "old")]
    result = run(*sides, "--all")

    assert 0 == result.exit_code, result.output
    assert "Input throughput" in result.output
    assert "End-to-end latency p95" in result.output


def test_simulated_and_measured_are_not_comparable(nights: Path, tmp_path: Path) -> None:
    """A simulated sweep is never held against a measured one, not even where only what both have is asked for."""

    def measured(raw: Trial) -> None:
        raw["simulated"] = False

    result = run(changed(nights, tmp_path / "new", measured, measured), nights / "old", "--common")

    assert 4 == result.exit_code, result.output
    assert "old is simulated and the other was measured" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--metric", "output_tok"), "Did you mean output_tok_per_s"),
        (("--config", "max_num_seqs=65"), "Did you mean max_num_seqs=64"),
        (("--plan",), "--plan is asked before NEW is made"),
    ],
)
def test_wrong_options_are_refused(nights: Path, options: tuple[str, ...], said: str) -> None:
    """A metric or config that is not there is named with the nearest, and no file is written."""
    result = run(nights / "new", nights / "old", *options)

    assert said in (
        result.output if result.exit_code == 2 and not result.exception else str(result.exception) + result.output
    )
    assert 0 != result.exit_code


def test_the_plan_states_what_will_be_found(nights: Path, tmp_path: Path) -> None:
    """Before anything is launched: the smallest regression by launches, what one takes, whether that is affordable."""
    everything = tmp_path / "plan.json"
    asked = ["--plan", "--against", str(nights / "old"), "--metric", "output_tok_per_s", "--regression", "0.2"]

    result = CliRunner().invoke(gate, [*asked, "--hours", "0.01", "--json", str(everything)])

    assert 0 == result.exit_code, result.output
    assert "Not affordable in 36 s: 0 launches of each config are affordable, which find nothing" in result.output
    found = json.loads(everything.read_text())
    assert (False, 0) == (found["is_affordable"], found["launches_affordable"])
    (closed, *_) = found["figures"]
    sizes = list(closed["smallest"].values())
    assert sizes == sorted(sizes, reverse=True)
    ample = CliRunner().invoke(gate, [*asked, "--hours", "10"])
    assert "ot affordable" not in ample.output
