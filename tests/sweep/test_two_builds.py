"""A sweep over two engine builds of a simulated node, through the command line."""

import html
import json
import math
import re
import shutil
import statistics
from pathlib import Path

import pytest
import yaml
from driven_home import BUILDS, Home

# Four sweeps, seven minutes: beside everything else they would be half of the fast tests' time.
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, Path, Home]:
    """A sweep of one config on two builds: what it said, and its archive."""
    done = home.run("sweep", "--inventory", "builds", "--sweep", "versions", "--no-report")
    assert 0 == done.returncode, done.stdout
    return done.stdout, home.archives()[-1], home


def test_each_build_runs_its_own_program(swept: tuple[str, Path, Home]) -> None:
    """A build that a config asks for, by name or by version, is the program that is started."""
    _, archive, home = swept
    trials = home.trials(archive)

    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    started = {trial["config"]["engine"]: Path(trial["argv"][0]).name for trial in trials}  # type: ignore[index]
    assert {name: f"vllm-{release}" for name, release in BUILDS.items()} == started
    reported = {trial["config"]["engine"]: trial["startup"]["engine_version"] for trial in trials}  # type: ignore[index]
    assert BUILDS == reported


def test_pages_show_what_reported_itself(swept: tuple[str, Path, Home], tmp_path: Path) -> None:
    """Both versions stand on the sweep's page, and each with its trial."""
    _, archive, home = swept
    made = home.run("report", str(archive), "--output", str(tmp_path / "site"))
    assert 0 == made.returncode, made.stdout
    overview = (tmp_path / "site" / archive.name / "index.html").read_text()
    texts = [page.read_text() for page in (tmp_path / "site").rglob("trials/0*.html")]

    assert "vLLM 0.24.0, vLLM 0.32.0" in overview
    for build, release in BUILDS.items():
        assert 1 == sum(f"vLLM {release}, build {build}" in text for text in texts)


def test_page_answers_whether_to_upgrade(home: Home, tmp_path: Path) -> None:
    """A sweep over two builds says for the workload which is faster, or that they are tied, by every launch's figures.

    The ratio on the page is that of the geometric means of the launches' own files.
    """
    done = home.run("sweep", "--inventory", "builds", "--sweep", "upgrade", "--no-report")
    assert 0 == done.returncode, done.stdout
    archive = home.archives()[-1]
    home.run("report", str(archive), "--output", str(tmp_path / "site"))
    page = (tmp_path / "site" / archive.name / "index.html").read_text()
    logs: dict[str, list[float]] = {"old": [], "new": []}
    for trial in home.trials(archive):
        speed = trial["runs"][0]["summary"]["output_tok_per_s"]  # type: ignore[index]
        logs[trial["config"]["engine"]].append(math.log(speed))  # type: ignore[index]
    ratio = math.exp(statistics.fmean(logs["new"]) - statistics.fmean(logs["old"]))
    text = html.unescape(re.sub(r"<[^>]+>", "", page))

    assert [4, 4] == [len(side) for side in logs.values()]
    said = re.search(
        r"Under short, new \(vLLM 0\.32\.0\) is (faster|slower|tied).*?: ([+−]?[\d.]+)% output throughput", text
    )
    assert said is not None, text[:3000]
    assert pytest.approx((ratio - 1) * 100, abs=0.06) == float(said[2].replace("−", "-"))
    assert "How each engine build starts" in text


def test_another_program_than_the_build_fails(home: Home) -> None:
    """An engine that reports another version than its build is a failed trial with its cause, and carries no load."""
    spec = home.root / "analysis" / "sweeps" / "versions.yml"
    given = yaml.safe_load(spec.read_text())
    given["fixed"]["env"] = {"TOKENPEAK_SIM_VERSION": "0.24.0"}
    spec.with_name("swapped.yml").write_text(yaml.safe_dump(given))

    done = home.run("sweep", "--inventory", "builds", "--sweep", "swapped", "--no-report")
    trials = home.trials(home.archives()[-1])

    assert {"old": "ok", "new": "failed"} == {trial["config"]["engine"]: trial["status"] for trial in trials}  # type: ignore[index]
    (wrong,) = [trial for trial in trials if trial["status"] == "failed"]
    assert "wrong_engine" == wrong["failure"]["cause"]  # type: ignore[index]
    assert "0.32.0 was asked for, and the engine that was started reports 0.24.0" in wrong["failure"]["message"]  # type: ignore[index]
    assert [] == wrong["runs"]
    assert "0.24.0" == wrong["startup"]["engine_version"]  # type: ignore[index]
    assert wrong["restoration"]["restored"]  # type: ignore[index]
    assert "wrong_engine" in done.stdout


def test_plan_knows_what_is_installed(swept: tuple[str, Path, Home]) -> None:
    """The record of the sweep has each build with the version that its installation says."""
    _, archive, _ = swept
    (node,) = json.loads((archive / "sweep.json").read_text())["nodes"]

    assert BUILDS == {build["name"]: build["installed"] for build in node["engines"]}


def test_build_that_no_node_has_is_dropped(home: Home) -> None:
    """The plan says which builds there are."""
    spec = home.root / "analysis" / "sweeps" / "versions.yml"
    absent = spec.with_name("absent.yml")
    absent.write_text(spec.read_text().replace("0.32.0", "0.19.1"))
    home.run("probe", "--inventory", "builds")

    said = home.run("plan", "--inventory", "builds", "--sweep", "absent").stdout

    assert "dropped 1 by engine_build: no engine build of one is '0.19.1': it has old (vLLM 0.24.0), new" in said


def test_nodes_with_other_builds_are_searched_apart(home: Home) -> None:
    """Each group has its plan, its search and its ranking; a build that one node lacks is dropped there alone."""
    folder = home.root / "inventory" / "unequal"
    shutil.copytree(home.root / "inventory" / "builds", folder, dirs_exist_ok=True)
    hosts = yaml.safe_load((home.root / "inventory" / "twins" / "hosts.yml").read_text())
    shared = yaml.safe_load((folder / "group_vars" / "all.yml").read_text())
    hosts["all"]["hosts"]["two"]["tokenpeak_engines"] = {"new": shared["tokenpeak_engines"]["new"]}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))

    done = home.run("sweep", "--inventory", "unequal", "--sweep", "versions", "--no-report")
    archive = home.archives()[-1]
    plans = {tuple(plan["nodes"]): plan for plan in json.loads((archive / "sweep.json").read_text())["plans"]}
    made = sorted((trial["node"], trial["config"]["engine"], trial["status"]) for trial in home.trials(archive))  # type: ignore[index]

    assert 0 == done.returncode, done.stdout
    assert {("one",): [], ("two",): ["engine_build"]} == {
        nodes: [dropped["rule"] for dropped in plan["dropped"]] for nodes, plan in plans.items()
    }
    assert [("one", "new", "ok"), ("one", "old", "ok"), ("two", "new", "ok")] == made
    assert "apart from two: engine builds old 0.24.0 + new 0.32.0 here, new 0.32.0 there" in done.stdout
    assert "1x NVIDIA L4 (new 0.32.0) on two" in done.stdout
