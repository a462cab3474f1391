"""An image has labels by which containers are found; every container that is made of it has them too, production's.

`tokenpeak.engine` with the digest of the state folder, which is no secret, made a restore end and remove production's
container as a left-over engine; an image that was committed has that of an apply. Labels of Compose made the engine's
container one of production's service, and a survey name a file that the image says as production's.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine import images
from tokenpeak.node.engine.container import label
from tokenpeak.node.engine.engine import Engine
from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import servers
from tokenpeak.node.production.managers import make_manager

PRODUCTION, OTHER = "aa" * 32, "bb" * 32
BUILD = {"image": "hub/vllm:1", "runtime": "docker", "user": "1000:1000"}


class FakeDocker:
    """Containers, as `docker` shows them; all are made of one image."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.image = {"Id": "sha256:1", "Config": {"Labels": labels}}
        self.containers: dict[str, dict[str, Any]] = {}

    def add(self, one: str, name: str, **own: str) -> dict[str, Any]:
        """A container with labels of its own and those of its image."""
        config = {"Labels": {**self.image["Config"]["Labels"], **own}, "Image": "hub/vllm:1"}
        self.containers[one] = {"Id": one, "Name": f"/{name}", "Image": "sha256:1", "Config": config}
        return self.containers[one]

    def run(self, *words: str) -> process.Ran:
        """Its command line."""
        if words[0] == "inspect":
            found = [self.image] if "image" in words else self._named(words[-1])
            return process.Ran(0, json.dumps(found), "") if found else process.Ran(1, "", "Error: No such container")
        if words[0] == "ps":
            wanted, _, value = words[words.index("--filter") + 1].partition("=")[2].partition("=")
            labels = {one: made["Config"]["Labels"] for one, made in self.containers.items()}
            found = [one for one, own in labels.items() if wanted in own and value in ("", own[wanted])]
            names = [f"{one} {self.containers[one]['Name'][1:]}" for one in found]
            return process.Ran(0, "\n".join(found if "--quiet" in words else names), "")
        if words[0] == "rm":
            del self.containers[words[-1]]
        return process.Ran(0, "", "")

    def _named(self, name: str) -> list[dict[str, Any]]:
        return [made for one, made in self.containers.items() if name in (one, made["Name"][1:])]


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], FakeDocker]:
    """Has every call of Docker answered by a stand-in whose image has these labels."""

    def stand_in(labels: dict[str, str]) -> FakeDocker:
        made = FakeDocker(labels)
        monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: made.run(*words))
        monkeypatch.setattr(Runtime, "write_log", lambda *_: None)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        return made

    return stand_in


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State.make(tmp_path / "state")
    made.write("node.json", {"engines": [{"name": "box", "build": BUILD}]})
    return made


def test_production_is_no_left_over_engine(state: State, docker: Callable[[dict[str, str]], FakeDocker]) -> None:
    """It stays whatever labels it has; an engine's own container, which has the name too, is ended and removed."""
    name, _, digest = label(state).partition("=")
    runtime = docker({name: digest})
    runtime.add(PRODUCTION, "production")

    assert Engine(state).recorded() is None
    Engine(state).stop(0.0)
    assert [PRODUCTION] == [*runtime.containers]

    runtime.add(OTHER, f"tokenpeak-engine-{state.digest}", **{name: digest})
    assert (Engine(state).recorded() or {})["container"]["runtime"] == "docker"
    assert [] == Engine(state).stop(0.0)
    assert [PRODUCTION] == [*runtime.containers]


def test_container_that_bears_the_engine_s_name_alone(
    state: State, docker: Callable[[dict[str, str]], FakeDocker]
) -> None:
    """Somebody else's; it stays."""
    runtime = docker({})
    runtime.add(OTHER, f"tokenpeak-engine-{state.digest}")

    Engine(state).stop(0.0)

    assert [OTHER] == [*runtime.containers]


def test_old_production_is_not_cleaned_away(
    state: State, docker: Callable[[dict[str, str]], FakeDocker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator's container of an image that was committed from an apply's; the apply's own goes."""
    runtime = docker({"tokenpeak.apply": "a-1"})
    runtime.add("cc" * 32, "llm")
    runtime.add(PRODUCTION, "llm.tokenpeak-aaaaaaaaaaaa")
    runtime.add(OTHER, "llm.tokenpeak-bbbbbbbbbbbb", **{"tokenpeak.apply": "a-2"})
    monkeypatch.setattr(process, "run", lambda argv, *_: runtime.run(*argv[1:]))

    make_manager({"manager": "docker", "unit": "llm"}, state).clean([])

    assert ["cc" * 32, PRODUCTION] == [*runtime.containers]


def test_engine_is_no_container_of_compose(tmp_path: Path, docker: Callable[[dict[str, str]], FakeDocker]) -> None:
    """The image's labels of Compose are empty for the engine; its others are nobody's."""
    docker({"com.docker.compose.project": "prod", "com.docker.compose.service": "llm", "version": "1"})

    options = images.container_start({"simulated": True}, BUILD).options

    assert ["--label=com.docker.compose.project=", "--label=com.docker.compose.service="] == options[-2:]


@pytest.mark.parametrize("is_own", [False, True])
def test_file_that_an_image_names(docker: Callable[[dict[str, str]], FakeDocker], is_own: bool) -> None:
    """A survey takes it from the container's own labels; what Compose itself built has those of its service."""
    service = {f"com.docker.compose.{name}": name for name in ("project", "service")}
    file = {"com.docker.compose.project.config_files": "/srv/llm/compose.yml"}
    made = docker(service if is_own else {**service, **file}).add(OTHER, "llm", **(file if is_own else {}))

    found = servers._of_container(Runtime("docker", None, ""), made, ["vllm", "serve", "m"])

    assert (("compose", "service", "/srv/llm/compose.yml") if is_own else ("docker", "llm", None)) == (
        found.manager,
        found.unit,
        found.file,
    )
