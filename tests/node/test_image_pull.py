"""Images pulled from a real registry by `install`: there before production stops, or the reason is said."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docker_daemon import Daemon, daemon, declare_image, why_no_docker
from tests.image_registry import publish, registry, why_no_registry
from tests.node.conftest import Node

pytestmark = [pytest.mark.e2e]

SMALL, LARGE = 1 << 20, 96 << 20


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A registry's port, with an image that is small and one that is large."""
    if reason := why_no_docker() or why_no_registry():
        pytest.skip(reason)
    with registry(tmp_path) as (fast, _), daemon() as docker:
        publish(docker, fast, "small:1", SMALL)
        publish(docker, fast, "large:1", LARGE)
        yield fast


@pytest.fixture
def tight(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon whose disk takes the small image, and not the large one."""
    with tempfile.TemporaryDirectory(prefix="tokenpeak-tight-") as disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={LARGE}", "tmpfs", disk], check=True)
        try:
            monkeypatch.setattr(tempfile, "tempdir", disk)
            with daemon() as made:
                monkeypatch.setattr(tempfile, "tempdir", None)
                monkeypatch.setenv("DOCKER_HOST", made.host)
                yield made
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)


def test_image_is_pulled_once_and_known_by_its_registry_s_digest(node: Node, tight: Daemon, port: int) -> None:
    """By install alone; the probe has the digest by which it can be pulled again."""
    image = f"127.0.0.1:{port}/small:1"
    declare_image(node, image=image, pull="missing", version=None)

    first, second = (node.run("install")["changed"] for _ in range(2))
    (build,) = node.run("probe")["engines"]
    (known,) = tight.docker("inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}", image).split()

    assert (True, False) == (first, second)
    assert known.partition("@")[2] == build["digest"]


def test_image_too_large_for_the_disk_is_said_before_production_stops(node: Node, tight: Daemon, port: int) -> None:
    """The runtime's reason is in the error, nothing of the image is left, and production serves on."""
    node.serve()
    before = tight.docker("images", "--all", "--quiet").split()
    declare_image(node, image=f"127.0.0.1:{port}/large:1", pull="missing")

    said = node.run("install")["error"]["text"]

    assert "no space left on device" in said
    assert "Production was not touched" in said
    assert before == tight.docker("images", "--all", "--quiet").split()
    assert node.run("status")["production"]["running"]
