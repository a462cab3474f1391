"""Engine builds that are images, on a real Docker daemon: what is missing is said, and a trial leaves nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docker_daemon import (
    COMMAND,
    PYTHON,
    Daemon,
    daemon,
    declare_image,
    mounts,
    request_in_image,
    why_no_docker,
)
from tests.free_ports import free_port
from tests.node.conftest import STANDIN, Node

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A Docker daemon of this module's own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        yield made


@pytest.fixture
def hosted(node: Node, docker: Daemon, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose one engine build is an image, with a small server as production."""
    monkeypatch.setenv("DOCKER_HOST", docker.host)
    declare_image(node)
    node.serve()
    return node


def serves(node: Node) -> bool:
    """Whether production answers by its model."""
    return bool(node.run("status")["production"]["model"] == "prod")


def image_id(docker: Daemon) -> str:
    """The image's id, as Docker says it."""
    return docker.docker("image", "inspect", "--format", "{{.Id}}", "engine:1").strip()


def test_trial_in_a_container(hosted: Node, docker: Daemon) -> None:
    """It serves on the host's network, is labelled, and is gone afterwards with its log kept; production is back."""
    launched = hosted.run("launch", request_in_image(hosted, "--reports", "0.32.0", "--say", "hello", "inside"))
    assert launched["ready"], json.dumps(launched)
    (name,) = docker.containers()
    (made,) = json.loads(docker.docker("inspect", name))
    finished = hosted.run("finish", hosted.finish_request())

    labels = {name: made["Config"]["Labels"][f"tokenpeak.engine.{name}"] for name in ("trial", "holder")}
    assert {"trial": "0000-abc", "holder": "sweep-1"} == labels
    assert {"max-size": "256m", "max-file": "2"} == made["HostConfig"]["LogConfig"]["Config"]
    assert ("host", launched["pid"]) == (made["HostConfig"]["NetworkMode"], made["State"]["Pid"])
    assert [launched["engine_digest"]] * 2 == [image_id(docker), made["Image"]]
    assert "0.32.0" == launched["engine_version"]
    assert (True, True) == (finished["engine_ran"], finished["engine_stopped"])
    assert finished["restoration"]["restored"]
    assert "hello inside" in (hosted.folder / "engine.log").read_text()
    assert [] == docker.containers()
    assert hosted.read("engine.json") is None
    assert serves(hosted)


def test_secret_of_a_container(hosted: Node, docker: Daemon) -> None:
    """Its key reaches the engine by its environment: no file of the state folder and no argument holds it."""
    (hosted.folder / "secret-0123abcd").write_text("the controller's secret")
    asked = {"secret": "secret-0123abcd", "key_nonce": "00112233445566778899aabbccddeeff"}
    launched = hosted.run("launch", request_in_image(hosted, **asked))
    (made,) = json.loads(docker.docker("inspect", *docker.containers()))
    (key,) = [one.partition("=")[2] for one in made["Config"]["Env"] if one.startswith("VLLM_API_KEY=")]
    kept = "".join(path.read_text(errors="replace") for path in hosted.folder.glob("*.json"))
    arguments = " ".join([*made["Args"], Path(f"/proc/{launched['pid']}/cmdline").read_text()])

    assert launched["ready"]
    assert key not in kept
    assert key not in arguments


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "engine:2"}, "docker has no image 'engine:2' on this node"),
        ({"runtime": "nerdctl"}, "No 'nerdctl' on this node"),
        ({"mounts": ["/nonexistent/models:/models:ro"]}, "/nonexistent/models is mounted by the build"),
        ({"mounts": ["models:/models"]}, "is no mount"),
        ({"args": ["--restart=always"]}, "'--restart=always', which the node script decides"),
        ({"limits": {"disk": "1g"}}, "'disk' is no limit of a container"),
    ],
    ids=["image", "runtime", "mount", "no mount", "args", "limit"],
)
def test_what_cannot_be_started_is_said_before(hosted: Node, docker: Daemon, changes: Any, said: str) -> None:
    """By the probe, and by a launch while production still serves."""
    declare_image(hosted, **changes)

    probed = hosted.run("probe")
    launched = hosted.run("launch", request_in_image(hosted))

    assert said in probed["engines"][0]["problem"]
    assert any(said in problem for problem in probed["problems"])
    assert said in launched["error"]["text"]
    assert hosted.read("record.json") is None
    assert serves(hosted)
    assert [] == docker.containers()


def test_model_must_be_in_a_mount(hosted: Node, tmp_path: Path) -> None:
    """By its path in a mount, or by its name in a mounted cache; else no trial is begun for it to be downloaded in."""
    cache = tmp_path / "cache"
    (cache / "hub" / "models--org--tiny" / "snapshots").mkdir(parents=True)
    model = tmp_path / "models" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")

    def problem(declared: dict[str, str], *mounts: str) -> str:
        declare_image(hosted, command=["/bin/echo", "0.32.0"], mounts=["/usr:/usr:ro", *mounts])
        hosted.declare(simulated=False, model=declared)
        return str(hosted.run("probe")["engines"][0]["problem"])

    named, placed = {"name": "org/tiny"}, {"name": "org/tiny", "path": "/models/tiny"}

    assert "is in no mounted cache" in problem(named)
    assert "None" == problem(named, f"{cache}:/root/.cache/huggingface")
    assert "is in no mount" in problem(placed)
    assert "is not at" in problem(placed, f"{cache}:/models:ro")
    assert "None" == problem(placed, f"{model.parent}:/models:ro")


def test_root_in_a_container_on_what_others_write(hosted: Node, tmp_path: Path) -> None:
    """Install refuses it, and takes it with a user of the container's own; the limited command wants one anyway."""
    from tokenpeak.node import installation
    from tokenpeak.node.machine.error import ScriptError

    models = tmp_path / "models"
    models.mkdir()
    models.chmod(0o777)
    mounts = ["/usr:/usr:ro", f"{models}:/models:ro"]
    declare_image(hosted, mounts=mounts)
    refused = hosted.run("install")
    with pytest.raises(ScriptError, match="a user of its own"):
        installation.require_permitted("launch", None, hosted.declaration)
    declare_image(hosted, mounts=mounts, user="1000:1000")
    taken = hosted.run("install")
    installation.require_permitted("launch", None, hosted.declaration)

    assert "can be written by others" in refused["error"]["text"]
    assert "user` of the build" in refused["error"]["text"]
    assert "error" not in taken


def test_production_and_engine_in_docker(hosted: Node, docker: Daemon) -> None:
    """Production's container is stopped and started by its id; the engine's is not taken for it, and goes."""
    hosted.stop_production()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    places = [word for place in mounts(PYTHON.parents[1], STANDIN.parent) for word in ("-v", place)]
    serve = ("engine:1", *COMMAND, "prod", "--port", str(port))
    made = docker.docker("run", "-d", "--init", "--name", "prod", "--network", "host", *places, *serve).strip()
    hosted.declare(production={"manager": "docker", "unit": "prod", "stop_grace_s": 2, "url": url})
    assert clock.wait_until(lambda: serving.served_model(url) == "prod", 30, poll_s=0.1)

    launched = hosted.run("launch", request_in_image(hosted))
    during = docker.docker("ps", "--format", "{{.Names}}").split()
    finished = hosted.run("finish", hosted.finish_request(production_ready_s=30))

    assert launched["ready"], json.dumps(launched)
    assert ["tokenpeak-engine"] == [name.rpartition("-")[0] for name in during]
    assert finished["restoration"]["restored"]
    assert ["prod"] == docker.containers()
    assert made == docker.docker("inspect", "--format", "{{.Id}}", "prod").strip()
    docker.docker("rm", "--force", "prod")


def test_missing_image_is_pulled_by_install_alone(hosted: Node) -> None:
    """Where the build says so; that it cannot be had is said, and production serves on."""
    declare_image(hosted, image="127.0.0.1:9/none:1", pull="missing")

    said = hosted.run("install")["error"]["text"]

    assert "`docker pull 127.0.0.1:9/none:1` ended with status 1" in said
    assert serves(hosted)
