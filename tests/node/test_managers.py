"""Managers of production: real ones where they run here, recorded behaviour of their command lines elsewhere.

A recorded command line is a script on the PATH that keeps its state in a file and answers as the real one does.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import OnPath

from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import said
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import production
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.kubernetes import pod_selector

DOCKER = """
import json, pathlib, sys
state = pathlib.Path(sys.argv[0] + ".state")
running = state.read_text() == "running"
words = sys.argv[1:]
if words[:1] == ["compose"]:
    words = words[words.index("-f") + 2:]
    words = words[2:] if words[0] == "-p" else words
    if words[0] == "ps":
        print("0123abcd" if running or "--all" in words else "")
    elif words[0] == "config":
        print("services: {}")
    else:
        state.write_text({"stop": "exited", "start": "running"}[words[0]])
elif words[0] == "inspect":
    if words[-1] not in ("prod", "sha-1"):
        sys.exit(f"Error: No such container: {words[-1]}")
    host = {"AutoRemove": pathlib.Path(sys.argv[0] + ".rm").exists(), "RestartPolicy": {"Name": "unless-stopped"}}
    status = {"Status": state.read_text(), "Running": running}
    print(json.dumps([{"Id": "sha-1", "Image": "sha256:feed", "State": status, "HostConfig": host}]))
elif words[0] == "stop":
    state.write_text("exited"); print(words[-1])
elif words[0] == "start":
    assert words[-1] == "sha-1", words
    state.write_text("running"); print(words[-1])
"""

KUBECTL = """
import json, pathlib, sys
state = pathlib.Path(sys.argv[0] + ".state")
words = [word for word in sys.argv[1:] if not word.startswith(("--namespace", "--context", "--kubeconfig"))]
if words[:2] == ["get", "pods"]:
    assert words[3] == "app=llm,tier=gpu", words
    # The last pod takes two looks to go; one that was evicted never goes.
    ask = int(state.read_text())
    if ask < 0:
        state.write_text(str(ask + 1))
    machines = pathlib.Path(sys.argv[0] + ".machines")
    names = machines.read_text().split() if machines.exists() else ["gpu-1"]
    pods = [{"spec": {"nodeName": names[i % len(names)]}} for i in range(abs(ask))] + [{"spec": {}}] * (ask > 0)
    if "--field-selector=status.phase!=Failed,status.phase!=Succeeded" not in words:
        pods.append({"spec": {"nodeName": "gpu-9"}, "status": {"phase": "Failed", "reason": "Evicted"}})
    print(json.dumps({"items": pods}))
elif words[0] == "get":
    replicas = max(0, int(state.read_text()))
    print(json.dumps({"spec": {"replicas": replicas, "selector": {"matchLabels": {"tier": "gpu", "app": "llm"}}},
        "status": {"replicas": replicas} if replicas else {}}))
elif words[0] == "scale":
    replicas = int(words[2].split("=")[1])
    state.write_text(str(replicas or -2)); print("deployment.apps/llm scaled")
"""


@pytest.mark.parametrize(
    ("program", "script", "state", "declared"),
    [
        ("docker", DOCKER, "running", {"manager": "docker", "unit": "prod"}),
        ("podman", DOCKER, "running", {"manager": "podman", "unit": "prod"}),
        ("docker", DOCKER, "running", {"manager": "compose", "file": "/srv/c.yml", "unit": "llm", "project": "p"}),
        (
            "kubectl",
            KUBECTL,
            "3",
            {"manager": "kubernetes", "unit": "deployment/llm", "namespace": "prod", "context": "gpu"},
        ),
    ],
    ids=["docker", "podman", "compose", "kubernetes"],
)
def test_stopped_and_brought_back(
    on_path: OnPath,
    tmp_path: Path,
    program: str,
    script: str,
    state: str,
    declared: dict[str, Any],
) -> None:
    """Production is stopped, stopped again to no effect, and brought back as recorded."""
    recorded = on_path(program, script, state)
    manager = make_manager(declared, State.make(tmp_path / "state"))
    before = manager.is_running()
    definition = json.loads(json.dumps(manager.definition()))

    manager.stop()
    manager.stop()
    between = manager.is_running()
    manager.start(definition)

    assert before
    assert not between
    assert manager.is_running()
    assert state == Path(f"{recorded}.state").read_text()


@pytest.mark.parametrize(("unit", "words"), [("prod", "--rm"), ("pord", "No such container: pord")])
def test_container_that_cannot_be_borrowed(on_path: OnPath, tmp_path: Path, unit: str, words: str) -> None:
    """Stopping one that was started with --rm would delete it; one that is not there is said in Docker's words."""
    program = on_path("docker", DOCKER, "running")
    Path(f"{program}.rm").touch()

    with pytest.raises(ScriptError, match=words):
        make_manager({"manager": "docker", "unit": unit}, State.make(tmp_path / "state")).definition()


def test_deployment_on_several_machines_is_refused(on_path: OnPath, tmp_path: Path) -> None:
    """Borrowing one of its nodes would stop the others, and a second node would find it down and leave it so."""
    recorded = on_path("kubectl", KUBECTL, "3")
    Path(f"{recorded}.machines").write_text("gpu-1 gpu-2")
    declared = {"manager": "kubernetes", "unit": "deployment/llm"}

    with pytest.raises(ScriptError, match=r"has pods on 2 machines \(gpu-1, gpu-2\).* a Deployment of its own"):
        production.record(declared, State.make(tmp_path / "state"))

    assert "3" == Path(f"{recorded}.state").read_text()


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"tier": "gpu", "app": "llm"}}, "app=llm,tier=gpu"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["llm", "chat"]}]}, "app in (llm,chat)"),
        (
            {
                "matchLabels": {"app": "llm"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["test"]},
                    {"key": "gpu", "operator": "Exists"},
                    {"key": "canary", "operator": "DoesNotExist"},
                ],
            },
            "app=llm,tier notin (test),gpu,!canary",
        ),
    ],
)
def test_pods_of_a_deployment_are_selected_as_it_does(selector: dict[str, Any], expected: str) -> None:
    """Labels and expressions together, in kubectl's words."""
    assert expected == pod_selector({"spec": {"selector": selector}})


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"manager": "sysvinit"}, r"'sysvinit'\. Known: systemd, docker"),
        ({"manager": "systemd"}, "'systemd' but no 'unit'"),
        ({"manager": "kubernetes", "unit": "pod/llm"}, "deployment/NAME or statefulset/NAME"),
    ],
)
def test_declaration_of_no_manager(tmp_path: Path, declared: dict[str, Any], words: str) -> None:
    """An unknown manager names the known ones, one without a key names that, and only what can be scaled is taken."""
    with pytest.raises(ScriptError, match=words):
        make_manager(declared, State.make(tmp_path / "state")).is_running()


@pytest.mark.parametrize(
    ("does", "said"), [("echo no licence >&2; exit 7", "7: no licence"), ("kill -9 $$", "-9: no output")]
)
def test_start_command_that_fails(tmp_path: Path, does: str, said: str) -> None:
    """Its status or signal and its output are shown, without those of an earlier start."""
    state = State.make(tmp_path / "state")
    state.path("production.log").write_text("earlier words")
    declared = {"manager": "command", "start": ["sh", "-c", does], "stop": ["true"]}

    with pytest.raises(ScriptError, match=rf"ended with status {said}\."):
        make_manager(declared, state).start({})


def test_docker_without_compose_v2(on_path: OnPath, tmp_path: Path) -> None:
    """What is missing is named, with another way."""
    on_path("docker", "import sys\nsys.stderr.write(\"unknown shorthand flag: 'f' in -f\\n\")\nsys.exit(125)\n", "")
    declared = {"manager": "compose", "file": str(tmp_path / "compose.yml"), "unit": "llm"}

    with pytest.raises(ScriptError, match=r"flag: 'f' in -f\. Manager compose needs Compose v2 .* manager docker"):
        make_manager(declared, State.make(tmp_path / "state")).is_running()


def test_reason_of_docker_above_its_advice() -> None:
    """Docker ends with where its help is; the line above says why."""
    reason = 'docker: Error response from daemon: exec: "vllm": executable file not found in $PATH'
    ran = process.Ran(127, "", f"{reason}\n\nRun 'docker run --help' for more information\n")

    assert reason == said(ran)


SYSTEMCTL = """
import pathlib, sys
if "stop" in sys.argv:
    sys.exit("Job for prod.service failed.")
print("LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=exit-code\\nRestart=always")
"""


def test_a_stop_that_fails_names_cause_and_remedy(on_path: OnPath, tmp_path: Path) -> None:
    """Beside what systemctl prints: how the unit stands, what restarts it, and where to look."""
    on_path("systemctl", SYSTEMCTL, "")
    declared = {"manager": "systemd", "unit": "prod.service"}

    with pytest.raises(ScriptError, match="Result=exit-code, Restart=always") as raised:
        make_manager(declared, State.make(tmp_path / "state")).stop()

    assert "Job for prod.service failed" in raised.value.text
    assert "journalctl -u prod.service" in raised.value.text
