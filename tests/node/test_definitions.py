"""Definitions of production: the real supervisord and Docker, recorded command lines of Compose and kubectl."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docker_daemon import IMAGE, Daemon, daemon, mounts, why_no_docker
from tests.free_ports import free_port
from tests.node.conftest import APPLY_HOLDER, STANDIN, Node, OnPath

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.manager import checksum
from tokenpeak.node.production.managers import make_manager


def answers(url: str) -> bool:
    return serving.complete(url, "prod", timeout_s=2) is None


# supervisord, the real one.


@pytest.fixture
def supervised(node: Node, tmp_path: Path) -> Iterator[tuple[Node, Path]]:
    """Production as a program in an included file of a real supervisord; that file."""
    if shutil.which("supervisord") is None:
        pytest.skip("supervisord is not installed (Debian: supervisor)")
    port = free_port()
    included = tmp_path / "conf.d" / "prod.conf"
    included.parent.mkdir()
    included.write_text(
        "; what this machine serves\n[program:other]\ncommand=sleep 600\nautostart=false\n"
        f"[program:prod]\ncommand={sys.executable} {STANDIN} serve prod\n  --port {port} --say 'a b' 100%%\n"
        'environment=A="1",B="two words"\nautorestart=true\n; the end\n'
    )
    config = tmp_path / "supervisord.conf"
    config.write_text(
        f"[unix_http_server]\nfile={tmp_path}/sock\n[supervisord]\nlogfile={tmp_path}/log\npidfile={tmp_path}/pid\n"
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"[supervisorctl]\nserverurl=unix://{tmp_path}/sock\n[include]\nfiles = conf.d/*.conf\n"
    )
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(["supervisord", "-n", "-c", str(config)], stdout=subprocess.DEVNULL) as started:
        assert clock.wait_until(lambda: answers(url), 60)
        node.declare(production={"manager": "supervisord", "unit": "prod", "config": str(config), "url": url})
        yield node, included
        started.terminate()


def serving_arguments(url: str) -> list[str]:
    """The arguments of the process that has the port in its command line, by the kernel, after `serve`."""
    port = url.rpartition(":")[2]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if str(STANDIN) in words and port in words:
            return words[words.index("serve") + 1 :]
    return []


@pytest.mark.e2e
def test_supervisord(supervised: tuple[Node, Path]) -> None:
    """Two lines of a program's section are changed and its file gets back every byte."""
    node, file = supervised
    url = node.declaration["production"]["url"]
    before, inode = file.read_bytes(), file.stat().st_mode
    old = serving_arguments(url)

    changed = node.run("change", node.change_request("%s", "$HOME", env={"C": "x,y", "A": None}))
    new, text_now = serving_arguments(url), file.read_text()
    confirmed = node.confirm()
    undone = node.run("change", node.change_request(edit=None))
    node.confirm()

    assert changed["changed"], changed
    assert ["prod", "--port", url.rpartition(":")[2], "--say", "a b", "100%"] == old
    assert [*old, "%s", "$HOME"] == new
    assert 'environment=B="two words",C="x,y"\n' in text_now
    assert "[program:other]\ncommand=sleep 600\nautostart=false\n" in text_now
    assert confirmed["confirmed"]
    assert undone["changed"], undone
    assert (before, inode) == (file.read_bytes(), file.stat().st_mode)
    assert old == serving_arguments(url)
    assert [file.name] == [path.name for path in file.parent.iterdir()]


# Docker, a real daemon.


@pytest.fixture
def contained(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Node, Daemon]]:
    """Production as a container of a real Docker daemon."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        monkeypatch.setenv("DOCKER_HOST", made.host)
        port = free_port()
        binds = [f"--volume={one}" for one in mounts(Path(sys.executable).resolve().parents[1], STANDIN.parent)]
        made.docker("volume", "create", "cache")
        made.docker(
            *("run", "--detach", "--name", "prod", "--network", "host", "--restart", "on-failure:3", *binds),
            *("--volume", "/anonymous", "--volume", "cache:/cache", "--env", "A=1", "--env", "B=two words"),
            *("--label", "owner=us", "--shm-size", "64m", "--ulimit", "nofile=1000:1000", "--cap-drop", "NET_RAW"),
            *("--entrypoint", str(Path(sys.executable).resolve()), IMAGE),
            *(str(STANDIN), "serve", "prod", "--port", str(port)),
        )
        url = f"http://127.0.0.1:{port}"
        assert clock.wait_until(lambda: answers(url), 60), made.docker("logs", "prod")
        node.declare(production={"manager": "docker", "unit": "prod", "stop_grace_s": 1, "url": url})
        yield node, made


_VOLATILE = ("Id", "Created", "State", "ResolvConfPath", "HostnamePath", "HostsPath", "LogPath", "Name", "GraphDriver")


def made_with(docker: Daemon, name: str = "prod") -> dict[str, Any]:
    """What Docker says that a container was made with, by `docker inspect` alone."""
    found = json.loads(docker.docker("inspect", name))[0]
    found = {key: value for key, value in found.items() if key not in (*_VOLATILE, "RestartCount")}
    found["Mounts"] = sorted(found["Mounts"], key=lambda one: one["Destination"])
    found["NetworkSettings"] = sorted(found["NetworkSettings"]["Networks"])
    return found


@pytest.mark.e2e
def test_docker(contained: tuple[Node, Daemon]) -> None:
    """The container is made anew but for its command, and the very one that was there comes back."""
    node, docker = contained
    container_id = docker.docker("inspect", "--format", "{{.Id}}", "prod").strip()
    before, sha256 = made_with(docker), node.run("describe")["sha256"]

    changed = node.run("change", node.change_request("--say", "$HOME", env={"C": "3", "A": None}))
    new = made_with(docker)
    policy_of_old = docker.docker("inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", container_id).strip()
    put_back = node.run("restore", {"holder": APPLY_HOLDER})
    after = made_with(docker)
    names = docker.containers()
    confirmed = node.run("change", node.change_request("--say", "two")) and node.confirm()
    kept = docker.containers()
    undone = node.run("change", node.change_request(edit=None))
    node.confirm()

    assert changed["changed"], changed
    assert put_back["restoration"]["restored"], put_back
    assert before == after
    assert ["prod"] == names
    assert "no" == policy_of_old, "a container that does not serve must not come up at boot"
    command = ("Cmd", "Env", "Labels")
    assert [*before["Config"]["Cmd"], "--say", "$HOME"] == new["Config"]["Cmd"]
    assert {"B=two words", "C=3"} <= {*new["Config"]["Env"]}
    assert "A=1" not in new["Config"]["Env"]
    assert {**before["Config"]["Labels"], "tokenpeak.apply": "a-1"} == new["Config"]["Labels"]
    same = [{k: v for k, v in one["Config"].items() if k not in command} for one in (before, new)]
    assert same[0] == same[1]
    assert [mount["Destination"] for mount in before["Mounts"]] == [mount["Destination"] for mount in new["Mounts"]]
    assert [mount.get("Name") for mount in before["Mounts"]] == [mount.get("Name") for mount in new["Mounts"]]
    host = [{k: v for k, v in one["HostConfig"].items() if k != "Binds"} for one in (before, new)]
    assert host[0] == host[1]
    assert confirmed["confirmed"]
    assert {"prod", f"prod.tokenpeak-{container_id[:12]}"} == {*kept}
    assert undone["changed"], undone
    assert (container_id, sha256) == (
        docker.docker("inspect", "--format", "{{.Id}}", "prod").strip(),
        node.run("describe")["sha256"],
    )
    assert ["prod"] == docker.containers()
    assert answers(node.declaration["production"]["url"])


# Recorded command lines: what keeps its state in a file answers as the real one does.

COMPOSE = """
import json, pathlib, sys
words = sys.argv[1:]
state = pathlib.Path(sys.argv[0] + ".state")
found = json.loads(state.read_text())
if words[0] == "image":
    print(json.dumps(["vllm", "serve"])); sys.exit()
assert words[0] == "compose", words
files, words = [], words[1:]
while words[0] in ("-f", "-p"):
    files += [words[1]] if words[0] == "-f" else []
    words = words[2:]
service = {"image": "vllm:1", "command": ["prod", "--port", "8000"], "environment": {"A": "1", "B": "$${X}"}}
for name in files[1:]:
    text = pathlib.Path(name).read_text()
    over = json.loads(text[text.index("{"):])["services"]["llm"]
    service = {**service, **over, "environment": {**service["environment"], **over.get("environment", {})}}
if words[0] == "config":
    assert words[1:] == ["--format", "json"] or not words[1:], words
    print(json.dumps({"services": {"llm": service}}))
elif words[0] == "ps":
    print("0123abcd" if found["running"] else "")
elif words[:4] == ["up", "--no-start", "--no-deps", "--no-build"]:
    found["made"] = service["command"]; state.write_text(json.dumps(found))
elif words[0] in ("stop", "start"):
    found["running"] = words[0] == "start"; state.write_text(json.dumps(found))
"""

KUBECTL = """
import json, pathlib, sys
state = pathlib.Path(sys.argv[0] + ".state")
found = json.loads(state.read_text())
words = [word for word in sys.argv[1:] if not word.startswith("--namespace")]
if words[:2] == ["get", "pods"]:
    print(json.dumps({"items": [{"spec": {"nodeName": "gpu-1"}, "status": {}}] * found["spec"]["replicas"]}))
elif words[0] == "get":
    print(json.dumps(found))
elif words[0] == "scale":
    found["spec"]["replicas"] = int(words[2].split("=")[1]); state.write_text(json.dumps(found))
elif words[0] == "patch":
    assert found["spec"]["replicas"] == 0, "a patch while replicas are asked for replaces pods"
    (patch,) = json.loads(words[words.index("-p") + 1])
    assert (patch["op"], patch["path"]) == ("replace", "/spec/template"), patch
    found["spec"]["template"] = patch["value"]; state.write_text(json.dumps(found))
"""
TEMPLATE = {
    "metadata": {"labels": {"app": "llm"}},
    "spec": {
        "containers": [
            {"name": "proxy", "image": "envoy:1", "command": ["envoy"]},
            {
                "name": "vllm",
                "image": "vllm:1",
                "command": ["vllm", "serve"],
                "args": ["prod", "--port", "8000", "--api-key", "$(KEY)"],
                "env": [{"name": "A", "value": "1"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "k"}}}],
            },
        ]
    },
}


def test_compose(on_path: OnPath, tmp_path: Path) -> None:
    """An override beside the Compose file has the new command; without it everything is as it was."""
    docker = on_path("docker", COMPOSE, json.dumps({"running": True, "made": None}))
    file = tmp_path / "compose.yaml"
    file.write_text("services: {}\n")
    manager = make_manager({"manager": "compose", "file": str(file), "unit": "llm"}, State.make(tmp_path / "state"))
    was = manager.describe()
    command = manager.command(was)
    edit = {"words": [*range(len(command.words)), "--say", "$X"], "env": {"C": "3"}, "image": None}

    own = manager.prepared(was, manager.edited(command, edit), "a-1")
    manager.write(own)
    now = manager.describe()
    made = json.loads(Path(f"{docker}.state").read_text())["made"]
    override = tmp_path / "compose.override.yaml"
    there = override.is_file()
    manager.prepare_back(was["own"])
    manager.write(was["own"])
    manager.clean([])

    assert ("vllm", "serve", "prod", "--port", "8000") == command.words
    assert own == now["own"]
    assert ["vllm", "serve", "prod", "--port", "8000", "--say", "$X"] == manager.shown_words(manager.command(now))
    assert ["prod", "--port", "8000", "--say", "$$X"] == made
    assert {"A": "1", "B": "${X}", "C": "3"} == manager.command(now).env
    assert there
    assert checksum(was) == checksum(manager.describe())
    assert ["prod", "--port", "8000"] == json.loads(Path(f"{docker}.state").read_text())["made"]
    assert ["bin", "compose.yaml", "state"] == sorted(path.name for path in tmp_path.iterdir())


def test_override_of_somebody_else(on_path: OnPath, tmp_path: Path) -> None:
    """An override that we did not write is not touched."""
    on_path("docker", COMPOSE, json.dumps({"running": True}))
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "compose.override.yaml").write_text("services: {}\n")
    declared = {"manager": "compose", "file": str(tmp_path / "compose.yaml"), "unit": "llm"}

    with pytest.raises(ScriptError, match="is not ours"):
        make_manager(declared, State.make(tmp_path / "state")).describe()


def test_kubernetes(on_path: OnPath, tmp_path: Path) -> None:
    """The pod template gets other args while no replica is asked for; the recorded template comes back whole."""
    selector = {"matchLabels": {"app": "llm"}}
    on_path("kubectl", KUBECTL, json.dumps({"spec": {"replicas": 2, "selector": selector, "template": TEMPLATE}}))
    declared = {"manager": "kubernetes", "unit": "deployment/llm", "namespace": "prod"}
    manager = make_manager(declared, State.make(tmp_path / "state"))
    was = manager.describe()
    recorded = manager.definition()
    command = manager.command(was)
    edit = {"words": [*range(len(command.words)), "--say", "$(X)"], "env": {"A": "2"}, "image": "vllm:2"}

    own = manager.prepared(was, manager.edited(command, edit), "a-1")
    manager.stop()
    manager.write(own)
    now = manager.describe()
    manager.start(manager.start_facts(recorded))
    container = now["own"]["template"]["spec"]["containers"][1]
    manager.stop()
    manager.write(was["own"])

    assert ["prod", "--port", "8000", "--api-key", "$(KEY)", "--say", "$$(X)"] == container["args"]
    assert "$(X)" == manager.shown_words(manager.command(now))[-1]
    assert "vllm:2" == container["image"]
    assert [TEMPLATE["spec"]["containers"][1]["env"][1], {"name": "A", "value": "2"}] == container["env"]  # type: ignore[index]
    assert own == now["own"]
    assert checksum(was) == checksum(manager.describe())
