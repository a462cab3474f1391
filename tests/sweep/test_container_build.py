"""A sweep over a command and an image with everything else equal, through the command line and a real Docker daemon."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import SPEC, Home
from tests.docker_daemon import IMAGE, Daemon, daemon, mounts, why_no_docker

from tokenpeak import paths

pytestmark = [pytest.mark.e2e]

SWEEP = {**SPEC, "axes": {"engine": ["here", "box"]}, "search": {**SPEC["search"], "replicates": 2}}


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A Docker daemon of this module's own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        yield made


@pytest.fixture(scope="module")
def swept(home: Home, docker: Daemon) -> tuple[str, Path]:
    """A sweep of one config on both builds: what it said, and its archive."""
    shared = yaml.safe_load((home.root / "inventory" / "builds" / "group_vars" / "all.yml").read_text())
    hosts = (home.root / "inventory" / "builds" / "hosts.yml").read_text()
    machine = home.state / "nodes" / "one" / "machine"
    machine.mkdir(parents=True, exist_ok=True)
    machine.parent.chmod(0o700)
    programs = sorted({Path(sys.executable).resolve().parents[1], Path(sys.prefix), paths.ROOT})
    box = {
        "version": "0.32.0",
        "image": IMAGE,
        "command": ["{{ tokenpeak_tools }}/vllm-0.32.0", "serve"],
        "mounts": [*mounts(*programs), f"{machine}:{machine}"],
        # The simulated boards know who holds their memory by its pid on the node.
        "args": ["--pid=host"],
    }
    here = {"version": "0.24.0", "command": ["{{ tokenpeak_tools }}/vllm-0.24.0", "serve"]}
    folder = home.root / "inventory" / "boxes"
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    (folder / "hosts.yml").write_text(hosts)
    given = {**shared, "tokenpeak_engines": {"here": here, "box": box}}
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(given, sort_keys=False))
    (home.root / "analysis" / "sweeps" / "boxes.yml").write_text(yaml.safe_dump(SWEEP))
    # A node's Docker is where its own `docker` finds it; nothing of the controller's environment reaches it.
    (machine / "docker").write_text(f'#!/bin/sh\nDOCKER_HOST={docker.host} exec {shutil.which("docker")} "$@"\n')
    (machine / "docker").chmod(0o755)
    done = home.run("sweep", "--inventory", "boxes", "--sweep", "boxes", "--no-report")
    assert 0 == done.returncode, done.stdout
    return done.stdout, home.archives()[-1]


def trials_of(home: Home, archive: Path) -> dict[str, list[dict[str, Any]]]:
    """The trials by the build that they asked for."""
    found: dict[str, list[dict[str, Any]]] = {}
    for trial in home.trials(archive):
        found.setdefault(trial["config"]["engine"], []).append(trial)
    return found


def test_both_builds_are_known_exactly(home: Home, docker: Daemon, swept: tuple[str, Path]) -> None:
    """By the version that each reports and what it was started from, in records, table and pages."""
    _, archive = swept
    trials = trials_of(home, archive)
    program = home.state / "nodes" / "one" / "machine" / "vllm-0.24.0"
    expected = {
        "here": ("0.24.0", f"sha256:{hashlib.sha256(program.read_bytes()).hexdigest()}"),
        "box": ("0.32.0", docker.docker("image", "inspect", "--format", "{{.Id}}", IMAGE).strip()),
    }
    (node,) = json.loads((archive / "sweep.json").read_text())["nodes"]
    made = home.run("report", str(archive), "--output", str(home.state / "site"))

    assert 0 == made.returncode, made.stdout
    assert expected == {
        name: (trial["startup"]["engine_version"], trial["startup"]["engine_digest"])
        for name, (trial, *_) in trials.items()
    }
    assert expected == {build["name"]: (build["installed"], build["digest"]) for build in node["engines"]}
    texts = [page.read_text() for page in (home.state / "site").rglob("trials/0*.html")]
    for name, (version, digest) in expected.items():
        assert any(f"vLLM {version}, build {name}, {digest[:19]}" in text for text in texts)


def test_nothing_is_left(home: Home, docker: Daemon, swept: tuple[str, Path]) -> None:
    """No container, no memory of the boards, and production answers."""
    assert swept[1].is_dir()
    assert [] == docker.containers()
    assert home.production_answers()
