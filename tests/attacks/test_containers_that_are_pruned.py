"""A cron job's `docker container prune` removes production's container while it is stopped, or others make it anew.

After a trial production stayed down for ever: its record had the container's id alone. After an apply the guard stopped
what served, and found only then that there was nothing to put back; it did the same to the container that an operator
then made by hand. What serves is left until the way back is there, and nothing is stopped that nobody of us made.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine.command import checksum
from tokenpeak.node.guard.phases import Phases
from tokenpeak.node.machine import clock, process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process import Ran
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production import production
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.containers import LABEL
from tokenpeak.node.production.managers.docker import DockerManager
from tokenpeak.node.production.restore import restore
from tokenpeak.node.protocol.parts import RestoreOutcome

OLD, NEW, HAND = "aa" * 32, "bb" * 32, "cc" * 32
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
    made.add(OLD, "prod")
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
        docker.add(NEW, "prod.tokenpeak-apply", words=[*WORDS, "--a", "1"], running=False, label="a-1")
        new = {"id": NEW, "restart": "always"}
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


def test_production_that_was_pruned_and_cannot_be_made_anew(node: Node, docker: FakeDocker) -> None:
    """The message says what happened and what to do; once that is done, production is taken as it is."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()
    docker.refusal = "No such image."

    refused = node.restored()
    docker.add(HAND, "prod")
    mended = node.restored()

    assert refused.restored is False
    assert "removed while it was stopped, as `docker container prune` does" in refused.message
    assert "No such image. Make prod anew by hand" in refused.message
    assert (True, "changed") == (mended.restored, mended.definition), mended.message


def test_production_that_others_made_anew_during_a_trial(node: Node, docker: FakeDocker) -> None:
    """The container that has its name now is started, and named as a changed definition."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()
    docker.add(HAND, "prod", running=False)

    outcome = node.restored()

    assert (True, "changed") == (outcome.restored, outcome.definition), outcome.message
    assert [HAND] == [*docker.containers]
    assert docker.containers[HAND]["State"]["Running"]


def test_half_made_container_of_an_earlier_try(node: Node, docker: FakeDocker) -> None:
    """It is ours, and makes room for a whole one."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()
    docker.add(HAND, f"prod.tokenpeak-{OLD[:12]}", running=False, words=["half"], label=OLD[:12])

    assert node.restored().restored
    assert [WORDS] == [[*made["Config"]["Entrypoint"], *made["Config"]["Cmd"]] for made in docker.containers.values()]


def test_old_container_that_was_pruned_during_an_apply(node: Node, docker: FakeDocker) -> None:
    """One like it is made before what serves is stopped; then it takes its place."""
    node.applied(docker)
    docker.prune()

    outcome = node.restored()

    assert outcome.restored, outcome.message
    assert [NEW] == docker.stopped
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
    del docker.containers[NEW]
    docker.add(HAND, "prod")
    mended = node.restored()

    assert ([False, False], [None, None]) == ([one.restored for one in refused], [one.definition for one in refused])
    assert "Make prod anew by hand" in refused[0].message
    assert served is not None
    assert (NEW, True) == (served["Id"], served["State"]["Running"])
    assert [] == docker.stopped
    assert (True, "changed") == (mended.restored, mended.definition), mended.message
    assert [HAND] == [*docker.containers]


def test_namesake_beside_the_old_container(node: Node, docker: FakeDocker) -> None:
    """What somebody gave production's name during an apply is never stopped; the message says both ways out."""
    node.applied(docker)
    del docker.containers[NEW]
    docker.add(HAND, "prod")

    refused = node.restored()
    docker.run(["docker", "rename", "prod", "theirs"])
    mended = node.restored()

    assert (False, None) == (refused.restored, refused.definition)
    assert f"`docker rm {OLD[:12]}`" in refused.message
    assert [] == docker.stopped
    assert (True, "put_back") == (mended.restored, mended.definition), mended.message
    assert {"/prod": OLD, "/theirs": HAND} == {made["Name"]: one for one, made in docker.containers.items()}


@pytest.mark.parametrize("is_moved", [False, True])
def test_container_is_made_anew_of_the_very_image(node: Node, docker: FakeDocker, *, is_moved: bool) -> None:
    """By its name as long as that means the same image, by its id afterwards."""
    node.borrowed()
    docker.run(["docker", "stop", "prod"])
    docker.prune()
    docker.image = "sha256:2" if is_moved else docker.image

    assert node.restored().restored
    assert ["sha256:1" if is_moved else "vllm:1"] == [made["Config"]["Image"] for made in docker.containers.values()]


@pytest.mark.parametrize(("left", "verb"), [("0123abcd\n", ["start", "llm"]), ("", ["--pull", "never", "llm"])])
def test_service_of_compose_that_was_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, verb: list[str]
) -> None:
    """Its container is made by the Compose file, of an image that is there; one that is left is started."""
    asked: list[list[str]] = []

    def run(argv: list[str], *_: object) -> Ran:
        asked.append(argv)
        return Ran(0, left if "ps" in argv else "", "")

    monkeypatch.setattr(process, "run", run)
    file = tmp_path / "compose.yaml"
    file.write_text("services: {}\n")
    declared = {"manager": "compose", "file": str(file), "unit": "llm"}

    make_manager(declared, State.make(tmp_path / "state")).start({})

    assert verb == asked[-1][-len(verb) :]


def test_way_back_of_a_rollback_that_was_pruned(node: Node, docker: FakeDocker) -> None:
    """It is refused before production is stopped, and nothing is renamed."""
    definition = make_manager(DECLARED, node.state)

    for verb in (definition.prepare_back, definition.write):
        with pytest.raises(ScriptError, match=f"The container {NEW[:12]} that was prod is gone"):
            verb({"id": NEW, "restart": "always"})

    assert "/prod" == docker.containers[OLD]["Name"]
    assert "always" == docker.containers[OLD]["HostConfig"]["RestartPolicy"]["Name"]


def test_container_of_podman_that_was_pruned(node: Node, docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made anew by the command line that made it."""
    made = ["podman", "run", "-d", "--name", "prod", "--env=A=1", "vllm:1", "serve", "m"]
    config = {"CreateCommand": made, "Entrypoint": ["vllm"], "Cmd": ["serve", "m"], "Env": ["A=1"]}
    asked: list[list[str]] = []

    def run(argv: list[str], *_: object) -> Ran:
        if argv[1] != "create":
            return docker.run(argv)
        asked.append(argv)
        docker.add(NEW, argv[2].partition("=")[2], running=False)
        return Ran(0, f"{NEW}\n", "")

    docker.containers.clear()
    monkeypatch.setattr(process, "run", run)
    definition = make_manager({**DECLARED, "manager": "podman"}, node.state)
    seen = definition.made_with({"Config": config, "ImageName": "vllm:1"})
    described = {"own": {"id": HAND, "restart": "always"}, "seen": seen}
    definition.make_again(described, {"definition": {"image": "sha256:1"}})

    name = f"prod.tokenpeak-{HAND[:12]}"
    options = [f"--name={name}", f"--label={LABEL}={HAND[:12]}", "--env=A=1", "vllm:1", "serve", "m"]
    assert [["podman", "create", *options]] == asked
    assert "/prod" == docker.containers[NEW]["Name"]
