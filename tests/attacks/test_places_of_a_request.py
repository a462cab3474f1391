"""The tuner names a place that is not his: a model's folder, a revision, a log's path in a variable.

Root made digests of whatever folder was named as the model: of a file with a short PIN that is as good as the PIN.
Models are looked at with the engine's rights, no path leads out by `..`, and no variable names a place.
"""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak.node.engine import models
from tokenpeak.node.machine import environment
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.haproxy import HaproxyBalancer
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.requests import LaunchRequest, parse


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter."""
    found = Path(tempfile.mkdtemp(prefix="tokenpeak-attack-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def model_in(folder: Path, mode: int = 0o755) -> Path:
    """A folder with a model's file."""
    folder.mkdir(mode=mode)
    (folder / "config.json").write_text("{}")
    (folder / "pin").write_text("1234")
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")
def test_model_that_only_root_can_read(place: Path) -> None:
    """With the engine's user it is not there, and its digest is not made."""
    secret, open_to_all = model_in(place / "secret", 0o700), model_in(place / "open")
    build, user = {"command": ["vllm"]}, pwd.getpwuid(65534).pw_name

    assert models.model_digest(build, str(secret), {}, [], user) is None
    assert not models.is_present(str(secret), {}, [], user)
    assert "is not on the node" in (models.model_problem(build, str(secret), {}, [], user) or "")
    assert (models.model_digest(build, str(open_to_all), {}, [], user) or "").startswith("sha256:")
    assert models.is_present(str(open_to_all), {}, [], user)


@pytest.mark.parametrize("way", ["..", "link"])
def test_way_out_of_a_mount(place: Path, way: str) -> None:
    """A container's model is digested below the build's mounts alone."""
    mount, secret = place / "models", model_in(place / "secret")
    mount.mkdir()
    build = {"image": "vllm:1", "mounts": [f"{mount}:/models:ro"]}
    model_in(mount / "m")
    name = "/models/../secret"
    if way == "link":
        (mount / "linked").symlink_to(secret)
        name = "/models/linked"

    assert models.model_digest(build, name, {}, [], None) is None
    assert (models.model_digest(build, "/models/m", {}, [], None) or "").startswith("sha256:")


@pytest.mark.parametrize("revision", ["../../../secret", ".."])
def test_revision_that_leads_out(place: Path, revision: str) -> None:
    """Neither does a revision."""
    (place / "hub" / "models--a--b" / "snapshots").mkdir(parents=True)
    model_in(place / "secret")
    argv = ["--download-dir", str(place / "hub"), "--revision", revision]

    assert models.model_digest({"command": ["vllm"]}, "a/b", {}, argv, None) is None


def test_model_of_a_request() -> None:
    """It is refused before anything is looked at."""
    given = {"trial_id": "0-a", "holder": "h", "argv": ["vllm"], "env": {}, "served_model": "m", "deadline_s": 1}
    given |= {"lease_s": 1, "trial_deadline_s": 1}

    parse(LaunchRequest, {**given, "model": "/models/..x/m"})
    with pytest.raises(ScriptError, match="leads out of its folder"):
        parse(LaunchRequest, {**given, "model": "/models/../root"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHINDUCTOR_WORKER_LOGPATH", "x"),
        ("TORCHINDUCTOR_PROFILE_OUTPUT", "x"),
        ("VLLM_SOMETHING_LOGFILE", "x"),
        ("NCCL_COMM_ID", "10.0.0.1:9"),
        ("NCCL_RAS_ADDR", "0.0.0.0:9"),
        ("NCCL_DEBUG_FILE", "x"),
        ("TORCHINDUCTOR_CXX", "x"),
        ("VLLM_NEW_THING", "/tmp/x"),
        ("NCCL_NEW_THING", ".."),
        ("VLLM_NEW_THING", "http://evil"),
        ("VLLM_NEW_THING", "~root"),
    ],
)
def test_variable_that_names_a_place(name: str, value: str) -> None:
    """By its name's end or by its value, where a pattern alone would allow it."""
    assert "no pattern allows it" in (environment.why_not(name, environment.DEFAULT, value) or "")
    assert environment.why_not(name, (*environment.DEFAULT, name), value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("VLLM_USE_V1", "1"), ("TORCHINDUCTOR_PROFILE", "1"), ("NCCL_ALGO", "Ring,Tree"), ("NCCL_IB_HCA", "=mlx5_0:1")],
)
def test_variable_that_tunes(name: str, value: str) -> None:
    """What tunes is set as before."""
    assert environment.why_not(name, environment.DEFAULT, value) is None


@pytest.mark.parametrize("server", ["b/s;disable server b/t", "b/s state maint", "b/s\nshow info", "b/s #"])
def test_balancer_s_words(tmp_path: Path, server: str) -> None:
    """HAProxy's socket takes several commands in a line: no name becomes one, on the way back either."""
    manager = make_manager({"manager": "none"}, State.make(tmp_path / "state"))
    balancer = HaproxyBalancer({"socket": str(tmp_path / "socket"), "servers": [server]}, manager)

    for verb in (balancer.rejoin, balancer.leave):
        with pytest.raises(ScriptError, match="more than a name"):
            verb([server])
