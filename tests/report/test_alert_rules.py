"""Alert rules by a real Prometheus: it scrapes guards' files through a real node exporter, and `tokenpeak serve`."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from tests.free_ports import free_port
from tests.node.conftest import node_in

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.node.guard.guard_report import METRICS
from tokenpeak.node.machine import clock
from tokenpeak.records import EndRecord
from tokenpeak.report.site.live import OF_NODES, OF_SWEEPS

RULES = paths.ROOT / "analysis" / "examples" / "alerts.yml"
AXES = {"max_num_seqs": [8]}
Alerts = set[tuple[str, str]]
"""Name of a rule that fires, and the node or sweep that it fires of."""


def programs() -> None:
    """Skip the test where Prometheus is not installed."""
    if lacking := [name for name in ("prometheus", "promtool", "prometheus-node-exporter") if not shutil.which(name)]:
        pytest.skip(f"not installed (Debian packages of these names): {', '.join(lacking)}")


def rules() -> list[dict[str, str]]:
    """The shipped rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_rules_name_metrics_that_are_written() -> None:
    """Each metric of a rule's expression is one that a guard writes or that /metrics has."""
    written = {*METRICS, *(f"tokenpeak_sweep_{name}" for name in (*OF_SWEEPS, *OF_NODES))}

    for rule in rules():
        named = set(re.findall(r"\btokenpeak_\w+", rule["expr"]))
        assert named
        assert named <= written


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    """Every rule is one of Prometheus' own; with a mistake in an expression, they are refused."""
    programs()
    check = ["promtool", "check", "rules", "--lint=all", "--lint-fatal"]
    done = subprocess.run([*check, str(RULES)], capture_output=True, text=True, check=False)
    wrong = tmp_path / "alerts.yml"
    wrong.write_text(RULES.read_text().replace("== 0", "=== 0"))

    assert 0 == done.returncode, done.stderr
    assert f"{len(rules())} rules found" in done.stdout
    assert 0 != subprocess.run([*check, str(wrong)], capture_output=True, check=False).returncode


@contextmanager
def running(argv: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """A program for as long as the block runs."""
    with log.open("w") as stream:
        started = subprocess.Popen(argv, stdout=stream, stderr=stream, env=environment)
    try:
        yield
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def firing(port: int) -> Alerts:
    """What fires, by Prometheus' own interface."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=5) as reply:
            found = json.load(reply)["data"]["alerts"]
    except OSError:
        return set()
    active = [alert["labels"] for alert in found if alert["state"] == "firing"]
    return {(labels["alertname"], labels.get("node") or labels["sweep"]) for labels in active}


def scraped(port: int) -> int:
    """How many targets Prometheus has reached."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as reply:
            return sum(target["health"] == "up" for target in json.load(reply)["data"]["activeTargets"])
    except OSError:
        return 0


@contextmanager
def prometheus(folder: Path, collector: Path, results: Path) -> Iterator[int]:
    """A Prometheus that scrapes a node exporter with this collector folder, and `tokenpeak serve`; its port."""
    exporter, served, port = free_port(), free_port(), free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
            }
            for name, target in (("nodes", exporter), ("tokenpeak", served))
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    serve = [str(Path(sys.executable).with_name("tokenpeak")), "serve", str(results), "--node-names"]
    serve += ["--port", str(served), "--output", str(folder / "site")]
    export = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"]
    export += [f"--collector.textfile.directory={collector}", f"--web.listen-address=127.0.0.1:{exporter}"]
    argv = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    argv += [f"--web.listen-address=127.0.0.1:{port}"]
    home = {**os.environ, "TOKENPEAK_STATE": str(folder / "state")}
    with (
        running(serve, folder / "serve.log", home),
        running(export, folder / "exporter.log"),
        running(argv, folder / "prometheus.log"),
    ):
        logs = [folder / f"{name}.log" for name in ("serve", "exporter", "prometheus")]
        reached = clock.wait_until(lambda: scraped(port) == 2, 60)
        assert reached, "\n".join(log.read_text()[-2000:] for log in logs)
        yield port


@contextmanager
def occupied(port: int) -> Iterator[None]:
    """A port that production cannot have for as long as the block runs."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


def end_of(sweep: str, *, status: str = "completed", unrestored: tuple[str, ...] = (), left_out: str = "") -> EndRecord:
    """How a sweep ended just now."""
    return EndRecord(
        sweep_id=sweep,
        status=status,
        ended_at=datetime.now(UTC),
        trials=1,
        unrestored=unrestored,
        left_out_nodes=(left_out,) if left_out else (),
    )


@pytest.mark.e2e
def test_every_rule_fires(tmp_path: Path) -> None:
    """Each fires of the node or sweep that it is for, of no other, and ends when that is mended.

    Two guards are real: one cannot bring production back until its port is free, the other is killed.
    """
    programs()
    collector, results = tmp_path / "collector", tmp_path / "results"
    collector.mkdir()
    good = make_archive(results / "good", gpus=["NVIDIA L4"], axes=AXES, end=False)
    good.write_end(end_of("good"))
    expected: Alerts = {
        ("TokenPeakGuardSilent", "gpu-2"),
        ("TokenPeakGuardActed", "gpu-1"),
        ("TokenPeakProductionNotSeenBack", "node-1"),
        ("TokenPeakSlowNode", "node-1"),
        ("TokenPeakSweepSilent", "silent"),
        ("TokenPeakSweepAborted", "aborted"),
    }
    with ExitStack() as stack:
        first, second = (stack.enter_context(node_in(tmp_path / f"state-{place}")) for place in (1, 2))
        for place, node in enumerate((first, second), start=1):
            node.production()
            node.declare(node=f"gpu-{place}", textfile_dir=str(collector))
            node.run("produce")
        second.run("launch", second.launch_request(lease_s=600))
        port = stack.enter_context(prometheus(tmp_path, collector, results))
        time.sleep(5)
        assert set() == firing(port)

        guard = second.read("guard.json")
        assert guard is not None
        os.kill(int(guard["pid"]), signal.SIGKILL)
        silent = make_archive(results / "silent", gpus=["NVIDIA L4"], axes=AXES, end=False)
        for path in silent.path.rglob("*"):
            os.utime(path, (time.time() - 7300,) * 2)
        for name, ended in (
            ("aborted", end_of("aborted", status="interrupted")),
            ("lost", end_of("lost", unrestored=("node-1",), left_out="node-1")),
        ):
            make_archive(results / name, gpus=["NVIDIA L4"], axes=AXES, end=False).write_end(ended)

        first.run("launch", first.launch_request(lease_s=10, production_ready_s=0.5))
        with occupied(int(first.declaration["production"]["url"].rpartition(":")[2])):
            assert clock.wait_until(lambda: ("TokenPeakProductionDown", "gpu-1") in firing(port), 60), firing(port)
        assert clock.wait_until(lambda: first.read("record.json") is None, 40)
        clock.wait_until(lambda: expected == firing(port), 240)
        found = firing(port)

        assert expected == found
        assert {rule["alert"] for rule in rules()} == {name for name, _ in expected} | {"TokenPeakProductionDown"}
        second.run("restore", {"release": True})
        second.run("launch", second.launch_request(trial_id="0001-abc"))
        second.run("finish", second.finish_request(trial_id="0001-abc"))
        assert clock.wait_until(lambda: ("TokenPeakGuardSilent", "gpu-2") not in firing(port), 60), firing(port)
