"""Others remove production's container while it is stopped, and an image says what its container is and runs as.

What serves is left until the way back is there, and nothing is stopped that nobody of us made. A label of an image
makes no container the engine's, an apply's or one of Compose; a name in an image gives nobody root; a question to it
leaves nothing on the node.
"""

import json
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node import installation
from tokenpeak.node.engine import images
from tokenpeak.node.engine.container import label
from tokenpeak.node.engine.engine import Engine
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, process
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process import Ran
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production import production
from tokenpeak.node.production.manager import checksum
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.containers import LABEL
from tokenpeak.node.production.managers.docker_and_podman import DockerManager
from tokenpeak.node.production.restore import restore
from tokenpeak.node.protocol.parts import RestoreOutcome

OLD_ID, NEW_ID, HAND_ID = "aa" * 32, "bb" * 32, "cc" * 32
DECLARED = {"manager": "docker", "unit": "prod"}
WORDS = ["sh", "-c", "exec vllm serve m"]
"""No command that an apply could change: whatever was borrowed comes back."""


class FakeDocker:
    """Docker's containers of one image."""

    def __init__(self) -> None:
        self.containers: dict[str, Json] = {}
        self.stopped: list[str] = []
        self.refusal: str | None = None
        self.image = "sha256:1"
        """What the image's name means."""

    def add(self, one: str, name: str, running: bool = True, words: Sequence[str] = WORDS, label: str = "") -> None:
        config = {"Entrypoint": words[:1], "Cmd": words[1:], "Env": ["A=1"], "Image": "vllm:1", "Hostname": "h"}
        self.containers[one] = {
            "Id": one,
            "Name": f"/{name}",
            "Image": "sha256:1",
            "Config": {**config, "Labels": {LABEL: label} if label else {}},
            "HostConfig": {"RestartPolicy": {"Name": "always", "MaximumRetryCount": 0}, "NetworkMode": "host"},
            "NetworkSettings": {"Networks": {}},
            "State": {"Running": running, "StartedAt": one},
        }

    def prune(self) -> None:
        """Remove what does not run."""
        self.containers = {one: made for one, made in self.containers.items() if made["State"]["Running"]}

    def named(self, name: str) -> Json | None:
        return next((made for one, made in self.containers.items() if name in (one, made["Name"][1:])), None)

    def create(self, method: str, path: str, body: Json) -> Json:
        """What the daemon's interface makes."""
        if self.refusal:
            raise ScriptError("definition", self.refusal)
        name = path.partition("name=")[2]
        assert (method, None) == ("POST", self.named(name))
        one = f"{len(self.containers) + 1:02d}" * 32
        self.add(one, name, running=False, words=[*body["Entrypoint"], *body["Cmd"]], label=body["Labels"][LABEL])
        self.containers[one]["Config"]["Image"] = body["Image"]
        return {"Id": one}

    def run(self, argv: Sequence[str], *_: object, **__: object) -> Ran:
        verb, words = argv[1], [word for word in argv[2:] if word != "--"]
        if "image" in argv:
            found = [{"Id": "sha256:1", "Config": {"Labels": {}}}]
            return Ran(0, self.image if verb == "image" else json.dumps(found), "")
        if verb == "ps":
            return Ran(0, "\n".join(one for one, made in self.containers.items() if made["Config"]["Labels"]), "")
        made = self.named(words[-2] if verb == "rename" else words[-1])
        if made is None:
            return Ran(1, "", f"Error: No such container: {words[-1]}")
        if verb == "inspect":
            return Ran(0, json.dumps([made]), "")
        if verb in ("start", "stop"):
            made["State"]["Running"] = verb == "start"
            self.stopped += [made["Id"]] * (verb == "stop")
        elif verb == "rename":
            assert self.named(words[-1]) is None, "a name is given once"
            made["Name"] = f"/{words[-1]}"
        elif verb == "update":
            made["HostConfig"]["RestartPolicy"]["Name"] = words[0].partition("=")[2]
        elif verb == "rm":
            assert not made["State"]["Running"]
            del self.containers[made["Id"]]
        return Ran(0, "", "")


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    """Has Docker answered by a stand-in, with production running."""
    made = FakeDocker()
    made.add(OLD_ID, "prod")
    monkeypatch.setattr(process, "run", made.run)
    monkeypatch.setattr(DockerManager, "_ask", lambda _, *words: made.create(*words))
    monkeypatch.setattr(production, "_START_PAUSE_S", 0.0)
    return made


class Node:
    """A node of whose production there is a record."""

    def __init__(self, place: Path) -> None:
        self.state = State.make(place / "state")

    def borrowed(self, **changes: Any) -> None:
        record = {"nonce": "n", "holder": "h", "boot_id": clock.boot_id(), "trial_id": "1", "engine_stop_s": 1}
        found = production.record(DECLARED, self.state)
        self.state.write("record.json", {**record, "production": found, "production_ready_s": 1, **changes})

    def applied(self, docker: FakeDocker) -> None:
        """The old container is stopped, and a new one serves, unconfirmed."""
        definition = make_manager(DECLARED, self.state)
        was = definition.describe()
        docker.add(NEW_ID, "prod.tokenpeak-apply", words=[*WORDS, "--a", "1"], running=False, label="a-1")
        new = {"id": NEW_ID, "restart": "always"}
        apply = {"was": was, "was_sha256": checksum(was), "new": new, "touched": True, "confirmed": False, "undo": 0}
        self.borrowed(apply=apply)
        docker.run(["docker", "stop", "prod"])
        definition.write(new)
        docker.run(["docker", "start", "prod"])
        docker.stopped.clear()

    def restored(self) -> RestoreOutcome:
        return restore(self.state, Phases(self.state), by="guard")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_production_that_was_pruned_during_a_trial(node: Node, docker: FakeDocker) -> None:
    """It is made anew by what was recorded of it, and runs under its name with its restart policy."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()

    outcome = node.restored()

    assert (True, "changed") == (outcome.restored, outcome.definition), outcome.message
    (made,) = docker.containers.values()
    assert ("/prod", True, "always") == (
        made["Name"],
        made["State"]["Running"],
        made["HostConfig"]["RestartPolicy"]["Name"],
    )
    assert WORDS == [*made["Config"]["Entrypoint"], *made["Config"]["Cmd"]]


def test_old_container_that_was_pruned_during_an_apply(node: Node, docker: FakeDocker) -> None:
    """One like it is made before what serves is stopped; then it takes its place."""
    node.applied(docker)
    docker.prune()

    outcome = node.restored()

    assert outcome.restored, outcome.message
    assert [NEW_ID] == docker.stopped
    (made,) = docker.containers.values()
    assert ("/prod", True) == (made["Name"], made["State"]["Running"])
    assert WORDS == [*made["Config"]["Entrypoint"], *made["Config"]["Cmd"]]


def test_old_container_that_cannot_be_made_anew(node: Node, docker: FakeDocker) -> None:
    """What serves by the new definition goes on, under its name, until somebody puts another in its place."""
    node.applied(docker)
    docker.prune()
    docker.refusal = "No such image."

    refused = [node.restored() for _ in range(2)]
    served = docker.named("prod")
    del docker.containers[NEW_ID]
    docker.add(HAND_ID, "prod")
    mended = node.restored()

    assert ([False, False], [None, None]) == ([one.restored for one in refused], [one.definition for one in refused])
    assert "Make prod anew by hand" in refused[0].message
    assert served is not None
    assert (NEW_ID, True) == (served["Id"], served["State"]["Running"])
    assert [] == docker.stopped
    assert (True, "changed") == (mended.restored, mended.definition), mended.message
    assert [HAND_ID] == [*docker.containers]


def test_namesake_beside_the_old_container(node: Node, docker: FakeDocker) -> None:
    """What somebody gave production's name during an apply is never stopped; the message says both ways out."""
    node.applied(docker)
    del docker.containers[NEW_ID]
    docker.add(HAND_ID, "prod")

    refused = node.restored()
    docker.run(["docker", "rename", "prod", "theirs"])
    mended = node.restored()

    assert (False, None) == (refused.restored, refused.definition)
    assert f"`docker rm {OLD_ID[:12]}`" in refused.message
    assert [] == docker.stopped
    assert (True, "put_back") == (mended.restored, mended.definition), mended.message
    assert {"/prod": OLD_ID, "/theirs": HAND_ID} == {made["Name"]: one for one, made in docker.containers.items()}


@pytest.mark.parametrize("is_moved", [False, True])
def test_container_is_made_anew_of_the_very_image(node: Node, docker: FakeDocker, *, is_moved: bool) -> None:
    """By its name as long as that means the same image, by its id afterwards."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()
    docker.image = "sha256:2" if is_moved else docker.image

    assert node.restored().restored
    assert ["sha256:1" if is_moved else "vllm:1"] == [made["Config"]["Image"] for made in docker.containers.values()]


PRODUCTION, OTHER = "aa" * 32, "bb" * 32


class LabellingDocker:
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


Labelling = Callable[[dict[str, str]], LabellingDocker]


@pytest.fixture
def labelling(monkeypatch: pytest.MonkeyPatch) -> Labelling:
    """Has every call of Docker answered by a stand-in whose image has these labels."""

    def stand_in(labels: dict[str, str]) -> LabellingDocker:
        made = LabellingDocker(labels)
        monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: made.run(*words))
        monkeypatch.setattr(Runtime, "write_log", lambda *_: None)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        return made

    return stand_in


def test_production_is_no_left_over_engine(state: State, labelling: Labelling) -> None:
    """It stays whatever labels it has; an engine's own container, which has the name too, is ended and removed."""
    state.write("node.json", {"engines": [{"name": "box", "build": IMAGE}]})
    name, _, digest = label(state).partition("=")
    runtime = labelling({name: digest})
    runtime.add(PRODUCTION, "production")

    assert Engine(state).recorded() is None
    Engine(state).stop(0.0)
    assert [PRODUCTION] == [*runtime.containers]

    runtime.add(OTHER, f"tokenpeak-engine-{state.digest}", **{name: digest})
    assert (Engine(state).recorded() or {})["container"]["runtime"] == "docker"
    assert [] == Engine(state).stop(0.0)
    assert [PRODUCTION] == [*runtime.containers]


IMAGE = {"image": "hub/vllm:1", "runtime": "docker"}


def declaration(engine_user: str | None, **build: Any) -> dict[str, Any]:
    """One build."""
    return {"engine": {"user": engine_user}, "engines": [{"name": "box", "build": build}]}


@pytest.mark.parametrize("user", ["vllm", "1000:vllm", "root", "0", "+0", "", "99999999999999999999"])
def test_name_of_the_image(user: str) -> None:
    """Refused with what to write, whoever else the engine is; what a runtime takes for no number is a name too."""
    with pytest.raises(ScriptError, match=r"decides whom a name means, root too\. Write the number of a user"):
        installation.require_permitted("launch", None, declaration("nobody", **IMAGE, user=user))


@pytest.mark.parametrize("build", [IMAGE, {"command": ["/opt/vllm/bin/vllm", "serve"]}])
def test_second_name_of_root(build: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has an account of number 0 by another name."""
    monkeypatch.setattr(pwd, "getpwnam", lambda _: pwd.getpwuid(0))

    with pytest.raises(ScriptError, match="'toor': through the guard command an engine must have a user of its own"):
        installation.require_permitted("launch", None, declaration("toor", **build))


def test_question_writes_to_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe through the guard command asks an image that says itself as whom it runs."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: commands.append(words) or process.Ran(0, "", ""))
    build = {**IMAGE, "mounts": [f"{tmp_path}:/models", "/usr:/usr:ro"]}

    images.ask(State.make(tmp_path / "state"), build, {}, ["vllm", "--version"], 9.0)

    binds = [word for word in commands[0] if word.startswith("type=bind")]
    assert [f"type=bind,src={tmp_path},dst=/models,readonly", "type=bind,src=/usr,dst=/usr,readonly"] == binds


VOLUME_BUILD = {"image": "hub/vllm:1", "runtime": "docker", "command": ["vllm", "serve"]}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the runtime is to do; it has the image."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(images, "found_image", lambda _: {"Id": "sha256:a"})
    monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: asked.append(words) or process.Ran(124, "", ""))
    return asked


def test_question_that_is_cut_short(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    """Its container is removed with the volumes that have no name."""
    images.ask(State.make(tmp_path / "state"), VOLUME_BUILD, {}, ["vllm", "--version"], 1.0)

    assert ("rm", "--force", "--volumes") == commands[-1][:3]
