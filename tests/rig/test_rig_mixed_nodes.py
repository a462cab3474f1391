"""One sweep over unequal machines by SSH: each kind of hardware has its own plan and its own search.

Five nodes: two alike, one with another class of driver, one without the older engine build, and one with mixed boards
of which two are chosen while somebody else computes on a third.
"""

import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.faults.bench import MACHINE, SPEC, Bench
from tests.faults.conftest import boot_node, place  # noqa: F401
from tests.rig.conftest import PYTHON

from tokenpeak.node.machine import clock
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

RELEASES = {"old": "0.24.0", "new": "0.32.0"}
MIXED = "NVIDIA L4, NVIDIA L4, NVIDIA T4"
MACHINES: dict[str, tuple[str, ...]] = {
    "mix1": ("--gpu", "NVIDIA L4"),
    "mix2": ("--gpu", "NVIDIA L4"),
    "mix3": ("--gpu", "NVIDIA L4", "--driver", "535.183.01"),
    "mix4": ("--gpu", "NVIDIA L4"),
    "mix5": ("--gpu", MIXED, "--count", "4"),
}
"""What each node's simulated machine is made with."""
GROUPS = {
    "1x NVIDIA L4 (22 GiB, driver 570) (old 0.24.0 + new 0.32.0)": ("mix1", "mix2"),
    "1x NVIDIA L4 (22 GiB, driver 535)": ("mix3",),
    "1x NVIDIA L4 (22 GiB, driver 570) (new 0.32.0)": ("mix4",),
    "2x NVIDIA L4": ("mix5",),
}
SWEEP: dict[str, Any] = {
    **SPEC,
    "axes": {"engine": ["old", "new"], "max_num_seqs": [8, 16]},
    # Of the node's default build, which is the older one where there is one: that has no such flag.
    "extra_configs": [{"name": "scheduled", "flags": {"max_num_scheduled_tokens": 4096}}],
    "deadlines": {**SPEC["deadlines"], "lease_s": 40, "engine_ready_s": 120, "run_s": 120},
}
BUSY_PORT = 9000
"""Where the engine of somebody else answers, on the board that is not chosen."""


@pytest.fixture(scope="module")
def benches(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Bench]]:  # noqa: F811
    """The nodes with production on each, all in the first one's inventory."""
    made: dict[str, Bench] = {}
    try:
        for number, name in enumerate(MACHINES):
            folder = tmp_path_factory.mktemp(name)
            node = boot_node(place, name, 160 + number)
            made[name] = Bench(node=node, root=folder / "checkout", state=folder / "state")
            made[name].prepare()
            install = (sys.executable, "-m", "tokenpeak.sim.install", MACHINE, "--start-s", "1")
            node.sh(*install, "--releases", ",".join(RELEASES.values()), *MACHINES[name])
        first = made["mix1"]
        path = first.root / "inventory" / "rig" / "hosts.yml"
        hosts: dict[str, Any] = {}
        for name, bench in made.items():
            own = yaml.safe_load((bench.root / "inventory" / "rig" / "hosts.yml").read_text())["all"]["hosts"][name]
            for key in ("tokenpeak_engine_version", "tokenpeak_engine_command"):
                del own[key]
            here = [build for build in RELEASES if name != "mix4" or build == "new"]
            own["tokenpeak_engines"] = {
                build: {"version": RELEASES[build], "command": [f"{MACHINE}/vllm-{RELEASES[build]}", "serve"]}
                for build in here
            }
            hosts[name] = own
        hosts["mix5"]["tokenpeak_gpus"] = [0, 1]
        path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False))
        first.write_spec("mixed", SWEEP)
        _keep_a_board_busy(made["mix5"])
        yield made
    finally:
        for bench in made.values():
            bench.node.testnode("down")
        (place / "known_hosts").unlink(missing_ok=True)


def _keep_a_board_busy(bench: Bench) -> None:
    """Somebody else's engine on the fourth board of this node."""
    serve = f"{MACHINE}/vllm serve Qwen/Qwen3-0.6B --host 127.0.0.1 --port {BUSY_PORT} --max-model-len 2048"
    bench.node.sh(
        "systemd-run", "-q", "--unit=busy", "--setenv=CUDA_VISIBLE_DEVICES=3", "/bin/sh", "-c", f"exec {serve}"
    )
    assert clock.wait_until(lambda: _used_mib(bench)[3] > 1000, 60, poll_s=0.2), bench.node.sh(
        "journalctl", "-u", "busy"
    )


def _used_mib(bench: Bench) -> list[int]:
    """Memory in use on each of the node's boards."""
    said = bench.node.sh(f"{MACHINE}/nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return [int(line) for line in said.split()]


@pytest.fixture(scope="module")
def swept(benches: dict[str, Bench]) -> tuple[str, Path]:
    """What a sweep over all of them said, and its archive."""
    first = benches["mix1"]
    controller = first.sweep("mixed")
    status = controller.wait(900)
    assert 0 == status, controller.said
    return controller.said, first.archives()[-1]


def _plans(archive: Path) -> dict[str, dict[str, Any]]:
    return {plan["hardware"]: plan for plan in json.loads((archive / "sweep.json").read_text())["plans"]}


def test_plan_is_made_for_each_kind(swept: tuple[str, Path]) -> None:
    """Equal machines share one; each says what keeps the others apart; a build or flag is dropped where it lacks."""
    said, archive = swept
    plans = _plans(archive)

    assert GROUPS == {hardware: tuple(plan["nodes"]) for hardware, plan in plans.items()}
    dropped = {
        plan["nodes"][0]: sorted((each["config"]["name"], each["rule"]) for each in plan["dropped"])
        for plan in plans.values()
    }
    without_flag = [("scheduled", "engine_flags")]
    without_build = [(f"engine=old, max_num_seqs={seqs}", "engine_build") for seqs in (16, 8)]
    assert {"mix1": without_flag, "mix3": without_flag, "mix4": without_build, "mix5": without_flag} == dropped
    for reason in (
        "apart from mix3: boards 22 GiB, driver 570 here, 22 GiB, driver 535 there",
        "apart from mix4: engine builds old 0.24.0 + new 0.32.0 here, new 0.32.0 there",
    ):
        assert reason in said


def test_each_kind_has_its_own_search(swept: tuple[str, Path], benches: dict[str, Bench]) -> None:
    """Every feasible config of a kind is measured once on its nodes, whatever the others measured."""
    _, archive = swept
    trials = tuple(Archive(archive).trials())

    for hardware, plan in _plans(archive).items():
        own = [trial for trial in trials if trial.node in GROUPS[hardware]]
        measured = Counter(trial.config.name for trial in own if trial.status == "ok")
        assert dict.fromkeys((each["config"]["name"] for each in plan["feasible"]), 1) == measured
        assert {hardware} == {trial.hardware for trial in own}
    assert {"mix1", "mix2"} == {trial.node for trial in trials if trial.node in ("mix1", "mix2")}
    for trial in trials:
        assert RELEASES[str(trial.config.engine)] == trial.startup.engine_version
    for bench in benches.values():
        bench.check_as_it_was()


def test_chosen_boards_alone_are_used_and_counted(swept: tuple[str, Path], benches: dict[str, Bench]) -> None:
    """The engine ran on them, samples hold no other board's figures, and somebody else's engine was not touched."""
    _, archive = swept
    (node,) = (each for each in json.loads((archive / "sweep.json").read_text())["nodes"] if each["node"] == "mix5")
    trials = [trial for trial in Archive(archive).trials() if trial.node == "mix5"]

    assert [(0, "NVIDIA L4"), (1, "NVIDIA L4")] == [(gpu["index"], gpu["name"]) for gpu in node["gpus"]]
    for trial in trials:
        boards = {match[1] for name in trial.series.columns if (match := re.match(r"gpu(\d+)_", name))}
        assert {"0", "1"} == boards
    used = _used_mib(benches["mix5"])
    assert used[3] > 1000
    assert used[1:3] == [1, 1]
    ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{BUSY_PORT}/health').status)"
    assert "200" == benches["mix5"].node.sh(PYTHON, "-c", ask).strip()


def test_page_ranks_each_kind_by_itself(swept: tuple[str, Path], benches: dict[str, Bench], tmp_path: Path) -> None:
    """The ranking has each kind's configs, and none has another kind's."""
    _, archive = swept
    controller = benches["mix1"].start("report", str(archive), "--output", str(tmp_path / "site"))
    assert 0 == controller.wait(400), controller.said
    pages = [path.read_text() for path in (tmp_path / "site" / archive.name).glob("*.html")]
    texts = [html.unescape(re.sub(r"<[^>]+>", " ", page)) for page in pages]

    for hardware in GROUPS:
        assert any(hardware in text for text in texts), hardware
