"""A sweep whose workload is production's own: clients that share no code with us ask it while it is observed."""

import json
import random
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import SPEC, Home, read_until

from tokenpeak.report import open_archive
from tokenpeak.report.load.production_replay import not_shown, production_words, reproductions

OBSERVED_S = 12
RATE_PER_S = 8.0
PROMPTS, ANSWERS = (40, 90, 200), (8, 16, 32)
OWN = {
    **SPEC,
    "workloads": [
        {
            "workload": {"from": "production", "over": f"{OBSERVED_S}s"},
            "levels": [{"replay": True}, {"concurrency": 4, "requests": 24}],
        }
    ],
    "search": {"anchor_every": None, "baseline": ["production"], "finalists": 0},
    "quality": False,
}


def ask(url: str, model: str, prompt: int, answer: int) -> None:
    """One completion of so many tokens."""
    ids = [random.randrange(300, 5000) for _ in range(prompt)]
    body = {"model": model, "prompt": ids, "max_tokens": answer, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    # Production is stopped in the end, with requests under way.
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except OSError:
        return


@contextmanager
def clients(url: str) -> Iterator[None]:
    """Clients that ask by chance at an even rate, until production is gone."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as response:
        model = json.load(response)["data"][0]["id"]
    over = threading.Event()

    def work() -> None:
        while not over.wait(random.expovariate(RATE_PER_S)):
            lengths = (random.choice(PROMPTS), random.choice(ANSWERS))
            threading.Thread(target=ask, args=(url, model, *lengths), daemon=True).start()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple[str, Path]:
    """What the sweep printed, and its archive."""
    (home.root / "analysis" / "sweeps" / "own.yml").write_text(yaml.safe_dump(OWN))
    probed = home.run("probe", "--inventory", "lone")
    assert probed.returncode == 0, probed.stdout
    with clients(f"http://{home.address}:18000"):
        sweep = home.start("sweep", "--inventory", "lone", "--sweep", "own", "--no-report")
        said = read_until(sweep, "Traffic of")
    said += sweep.communicate(timeout=300)[0]
    assert sweep.returncode == 0, said
    return said, home.archives()[-1]


def record(archive: Path) -> dict[str, Any]:
    """What the sweep set out to do."""
    content: dict[str, Any] = json.loads((archive / "sweep.json").read_text())
    return content


@pytest.mark.integration
def test_it_replays_what_was_asked(swept: tuple[str, Path]) -> None:
    """Rate, lengths and what was answered are those of the clients; of prompts there is nothing in the archive."""
    said, archive = swept
    traffic = json.loads((archive / "traffic.json").read_text())
    kept = record(archive)["production_traffic"]

    assert "reading production's metrics for 12 s" in said
    assert kept["requests"] == len(traffic["requests"]) == pytest.approx(RATE_PER_S * OBSERVED_S, rel=0.35)
    given, made = ({each[f"{kind}_tokens"] for each in traffic["requests"]} for kind in ("input", "output"))
    if traffic["figures"]["lengths_together"]:
        assert given <= set(PROMPTS)
        assert made <= set(ANSWERS)
    # Else, on a machine that reads seldom, each is from a bucket of vLLM's: 20 to 50, 50 to 100, 100 to 200.
    assert 20 <= min(given) <= max(given) <= 200
    assert 5 <= min(made) <= max(made) <= 50
    assert traffic["figures"]["input_tokens"]["mean"] == pytest.approx(sum(PROMPTS) / 3, rel=0.3)
    assert traffic["figures"]["finished"] == {"length": 1.0}
    assert record(archive)["spec"]["workloads"][0]["workload"]["path"] == str(archive / "traffic.json")


@pytest.mark.integration
def test_it_proves_itself(swept: tuple[str, Path]) -> None:
    """Production's settings answer the replay as production's own histograms say, and the page says so."""
    _, archive = swept
    view = open_archive(archive)
    words = production_words(view)

    assert {"ttft_s", "tpot_s"} == {each.quantity for each in reproductions(view)}
    assert all(each.holds and each.n > 20 for each in reproductions(view)), reproductions(view)
    assert words is not None
    assert "reproduces production" in str(words.parts)
    assert not not_shown(view)


@pytest.mark.integration
def test_another_workload_is_marked(swept: tuple[str, Path], tmp_path: Path) -> None:
    """Where production's histograms are others than the replay's, the workload is marked, and by how much."""
    _, archive = swept
    other = tmp_path / archive.name
    shutil.copytree(archive, other)
    content = record(other)
    histogram = content["production_traffic"]["ttft_s"]
    content["production_traffic"]["ttft_s"] = [[bound * 20, share] for bound, share in histogram]
    (other / "sweep.json").write_text(json.dumps(content))
    view = open_archive(other)
    words = production_words(view)

    assert not_shown(view)
    assert words is not None
    assert "does not reproduce production" in str(words.parts)


@pytest.mark.integration
def test_a_moved_archive_goes_on_with_its_own_traffic(home: Home, swept: tuple[str, Path]) -> None:
    """Another controller resumes by the operator's spec; what is replayed is the archive's file, wherever it lies."""
    _, archive = swept
    moved = archive.with_name(archive.name.replace("own", "moved"))
    shutil.copytree(archive, moved)
    content = record(moved)
    content["sweep_id"] = moved.name
    content["spec"]["workloads"][0]["workload"]["path"] = "/elsewhere/traffic.json"
    (moved / "sweep.json").write_text(json.dumps(content))
    trials = sorted((moved / "trials").glob("*.json"))
    for trial in (moved / "trials").iterdir():
        if trial.name.startswith(trials[-1].stem):
            trial.unlink()
    for trial in trials[:-1]:
        kept = json.loads(trial.read_text())
        trial.write_text(json.dumps({**kept, "sweep_id": moved.name}))
    (moved / "end.json").unlink()
    time.sleep(1)
    done = home.run("sweep", "--resume", moved.name, "--sweep", "own", "--no-report")

    assert done.returncode == 0, done.stdout
    assert len(list((moved / "trials").glob("*.json"))) == len(trials)


@pytest.mark.integration
def test_production_that_nobody_asks(home: Home) -> None:
    """Nothing is stopped for a workload that cannot be made, and the reason is a sentence."""
    spec = {**OWN, "workloads": [{**OWN["workloads"][0], "workload": {"from": "production", "over": 2}}]}
    (home.root / "analysis" / "sweeps" / "idle.yml").write_text(yaml.safe_dump(spec))
    home.run("restore", "--inventory", "twins")
    home.run("probe", "--inventory", "twins")
    before = len(home.archives())
    done = home.run("sweep", "--inventory", "twins", "--node", "two", "--sweep", "idle", "--no-report")

    assert done.returncode == 1
    assert "too little to tune for" in done.stdout
    assert "nothing was stopped" in done.stdout
    assert before == len(home.archives())
