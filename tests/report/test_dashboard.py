"""The Grafana dashboard: its queries by a real Prometheus, which scrapes `tokenpeak serve` and an engine under load."""

import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from test_alert_rules import programs, running, scraped
from tests.free_ports import free_port

from archive_factory import make_archive
from commands import typed
from tokenpeak import paths
from tokenpeak.node.machine import clock
from tokenpeak.records import EndRecord
from tokenpeak.report.site.live import OF_NODES, OF_SWEEPS

DASHBOARD = json.loads((paths.ROOT / "analysis" / "examples" / "dashboard.json").read_text())
RECORDED = paths.ROOT / "tests" / "sim" / "recorded" / "vllm-0.32.0" / "metric-names.txt"
QUIET = ("num_preemptions",)
"""Of an engine, what a small load does not raise: its rate is there, and 0."""


def queries() -> Iterator[tuple[str, str]]:
    """The title of each panel and each of its queries."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_queries_name_metrics_that_there_are() -> None:
    """Ours are those of /metrics, and the engine's those that a real vLLM has."""
    ours = {f"tokenpeak_sweep_{name}" for name in (*OF_SWEEPS, *OF_NODES)}
    theirs = set(RECORDED.read_text().split())

    for title, expression in queries():
        named = set(re.findall(r"\b(?:tokenpeak_|vllm:)\w+", expression))
        assert named, title
        for name in named:
            assert name in ours or re.sub(r"_(?:total|bucket)$", "", name) in theirs or name in theirs, name


def test_panels_are_apart() -> None:
    """No two panels lie on each other, none is wider than the page, and each has an id of its own."""
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len(places) == len({panel["id"] for panel in DASHBOARD["panels"]})


def found(port: int, expression: str) -> list[float]:
    """The values that Prometheus finds, with Grafana's variables filled in as it fills them."""
    filled = re.sub(r"\$(?:engine|inventory)\b", ".*", expression).replace("$__rate_interval", "30s")
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': filled})}"
    with urllib.request.urlopen(url, timeout=5) as reply:
        return [float(each["value"][1]) for each in json.load(reply)["data"]["result"]]


@pytest.mark.e2e
def test_every_query_finds_something(tmp_path: Path) -> None:
    """Each panel has a value, none of them NaN, after a minute of load."""
    programs()
    results = tmp_path / "results"
    archive = make_archive(results / "one", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, end=False)
    make_archive(results / "two", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, end=False)
    archive.write_end(EndRecord(sweep_id="one", status="completed", ended_at=datetime.now(UTC), trials=1))
    served, engine, port = free_port(), free_port(), free_port()
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        for name, target in (("tokenpeak", served), ("vllm", engine))
    ]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    program = str(Path(sys.executable).with_name("tokenpeak"))
    start = [sys.executable, "-m", "tokenpeak.sim.engine", "serve", "m", "--port", str(engine)]
    serve = [program, "serve", str(results), "--port", str(served), "--output", str(tmp_path / "site")]
    watch = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    watch += [f"--web.listen-address=127.0.0.1:{port}"]
    with (
        running(start, tmp_path / "engine.log"),
        running(serve, tmp_path / "serve.log"),
        running(watch, tmp_path / "prometheus.log"),
    ):
        assert clock.wait_until(lambda: scraped(port) == 2, 90), (tmp_path / "prometheus.log").read_text()[-2000:]
        load = typed("load", f"http://127.0.0.1:{engine}", "--concurrency", "4", "--requests", "60")
        assert load.returncode in (0, 4), load.stderr
        empty = [
            (title, expression)
            for title, expression in queries()
            if not (values := found(port, expression)) or any(value != value for value in values)
        ]

    assert [] == empty
