"""What a trial needs on a node, and what it cannot do there."""

import json
import subprocess

import pytest
from tests.rig.conftest import PYTHON, SECRET, SERVER, STATE, RigNode

from tokenpeak import paths
from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

COMMAND = "/usr/local/sbin/tokenpeak-node"
ENGINE = {"command": [PYTHON, SERVER, "serve"], "user": "engine", "limits": {"LimitNOFILE": 4096, "CPUWeight": 50}}


def sudoers_line() -> str:
    """The line that the documentation asks administrators to write."""
    text = (paths.PLAYBOOKS / "README.md").read_text()
    return next(line for line in text.splitlines() if "NOPASSWD" in line)


@pytest.fixture
def limited(rig_node: RigNode) -> RigNode:
    """A node with TokenPeak installed for a user who is not root."""
    for user in ("tuner", "engine"):
        rig_node.sh("useradd", "-m", "-s", "/bin/bash", user)
    rig_node.sh("sh", "-c", "cp -r /root/.ssh /home/tuner/ && chown -R tuner: /home/tuner/.ssh")
    rig_node.write("/etc/sudoers.d/tokenpeak", sudoers_line() + "\n")
    rig_node.sh("chmod", "0440", "/etc/sudoers.d/tokenpeak")
    rig_node.declare(
        production=rig_node.production_unit(enabled=True),
        engine=ENGINE,
        guard_command=COMMAND,
    )
    assert clock.wait_until(rig_node.answers, 10)
    return rig_node


def as_tuner(node: RigNode, *argv: str, request: object = None) -> "subprocess.CompletedProcess[str]":
    """Run a command on the node as the user that the inventory logs in as, over ssh."""
    words = [word.replace("root@", "tuner@") for word in node.ssh_argv(*argv)]
    given = "" if request is None else json.dumps(request)
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False)


def guarded(node: RigNode, command: str, request: object = None) -> dict[str, object]:
    """A command through sudo; its answer."""
    done = as_tuner(node, "sudo", "-n", COMMAND, command, request=request)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_trial_needs_the_guard_command_alone(limited: RigNode) -> None:
    """A whole trial as a user with one line of sudoers: production stops and comes back."""
    launched = guarded(limited, "launch", limited.launch_request())
    during = guarded(limited, "status")
    user = limited.sh("ps", "-o", "user=", "-p", str(launched["pid"])).strip()
    finished = guarded(limited, "finish", {"trial_id": "0000-abc", "holder": "sweep-1"})

    assert launched["ready"], launched
    assert during["guard_alive"]
    assert "engine" == user
    assert finished["restoration"]["restored"]  # type: ignore[index]
    assert limited.answers()


@pytest.mark.parametrize(
    "argv",
    [
        ["sudo", "-n", "/usr/bin/id"],
        ["sudo", "-n", COMMAND, "install"],
        ["sudo", "-n", COMMAND, "produce"],
        ["sudo", "-n", COMMAND, "launch", "--request", "/etc/shadow"],
        ["sudo", "-n", COMMAND, "launch", "--state", "/home/tuner", "--request", "-"],
        ["sudo", "-n", COMMAND, "launch", "--request", "-"],
        ["sudo", "-n", COMMAND, "status", "--state", "/dev/shm"],
        ["sudo", "-n", COMMAND, "status", "--help"],
        ["sudo", "-n", COMMAND],
        ["sudo", "-n", "PYTHONPATH=/home/tuner", COMMAND, "status"],
        ["cat", f"{STATE}/{SECRET}"],
        ["sh", "-c", f"'echo >> {COMMAND}'"],
        ["sh", "-c", f"'echo >> {STATE}/tokenpeak-node.pyz'"],
    ],
)
def test_user_cannot_do_more(limited: RigNode, argv: list[str]) -> None:
    """Anything else that root could do is refused."""
    before = limited.sh("sha256sum", COMMAND, f"{STATE}/tokenpeak-node.pyz")

    done = as_tuner(limited, *argv, request=limited.launch_request())

    assert 0 != done.returncode, done.stdout
    assert before == limited.sh("sha256sum", COMMAND, f"{STATE}/tokenpeak-node.pyz")
    assert limited.answers()


def test_engine_is_asked_as_its_own_user(limited: RigNode) -> None:
    """A probe runs no file of the engine's user as root, nor a module in the folder where the caller is."""
    limited.write("/home/engine/vllm", "#!/bin/sh\nid -un >> /tmp/asked\necho 0.32.0\n")
    limited.sh("sh", "-c", "chmod 755 /home/engine /home/engine/vllm; chown engine: /home/engine/vllm")
    limited.write("/home/tuner/vllm.py", "open('/var/was-here', 'w').write('x')\nprint('0.32.0')\n")
    limited.sh("chown", "tuner:", "/home/tuner/vllm.py")
    script = {**ENGINE, "command": ["/home/engine/vllm", "serve"]}
    module = {**ENGINE, "command": [PYTHON, "-m", "vllm", "serve"]}
    declared = limited.read("node.json") or {}

    limited.write(f"{STATE}/node.json", json.dumps({**declared, "engine": script}))
    version = guarded(limited, "probe")["engine_version"]
    limited.write(f"{STATE}/node.json", json.dumps({**declared, "engine": module}))
    guarded(limited, "probe")

    assert "0.32.0" == version
    assert {"engine"} == set(limited.sh("cat", "/tmp/asked").split())
    assert "" == limited.sh("cat", "/var/was-here")


def test_engine_has_its_own_user_and_limits(limited: RigNode) -> None:
    """The engine cannot read the node's secrets, gains no rights, and has the declared limits."""
    launched = guarded(limited, "launch", limited.launch_request())
    pid = str(launched["pid"])
    status = limited.sh("cat", f"/proc/{pid}/status")
    limits = limited.sh("cat", f"/proc/{pid}/limits")
    peek = limited.sh("runuser", "-u", "engine", "--", "cat", f"{STATE}/{SECRET}")
    guarded(limited, "restore")

    assert "NoNewPrivs:\t1" in status
    assert "4096" in next(line for line in limits.splitlines() if line.startswith("Max open files"))
    assert "" == peek


IN_A_SCOPE = "exec systemd-run --quiet --scope --unit=caller-{command} runuser -u tuner -- sudo -n"


@pytest.fixture
def by_commands(limited: RigNode) -> RigNode:
    """The node, with production of a pair of commands, which is in the control group of whoever starts it."""
    limited.sh("systemctl", "disable", "--now", "-q", "prod.service")
    serve = f"{PYTHON} {SERVER} serve prod --host {limited.address} --port 8000"
    limited.write("/opt/start", f"#!/bin/sh\nsetsid {serve} >/dev/null 2>&1 & echo $! > /run/prod.pid\n")
    limited.write("/opt/stop", "#!/bin/sh\nkill $(cat /run/prod.pid)\n")
    limited.sh("chmod", "755", "/opt/start", "/opt/stop")
    limited.sh("systemd-run", "--quiet", "--property=KillMode=process", "/opt/start")
    declared = limited.read("node.json") or {}
    url = f"http://{limited.address}:8000"
    production = {"manager": "command", "start": ["/opt/start"], "stop": ["/opt/stop"], "url": url}
    limited.write(f"{STATE}/node.json", json.dumps({**declared, "production": production}))
    assert clock.wait_until(limited.answers, 10)
    return limited


def in_a_scope(node: RigNode, command: str, request: object) -> "subprocess.Popen[str]":
    """A command of the tuner's in a scope that he has power over, as over his session's."""
    node.write("/run/request.json", json.dumps(request))
    argv = node.ssh_argv("sh", "-c", f"'{IN_A_SCOPE.format(command=command)} {COMMAND} {command} < /run/request.json'")
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_stopped(node: RigNode) -> bool:
    return "stopped" in (node.read("record.json") or {}) and not node.answers()


def test_end_of_the_callers_session_ends_nothing(by_commands: RigNode) -> None:
    """Production that `finish` has started serves on when everything in its caller's control group is killed."""
    launched = in_a_scope(by_commands, "launch", by_commands.launch_request()).communicate(timeout=60)[0]
    finished = in_a_scope(by_commands, "finish", {"trial_id": "0000-abc", "holder": "sweep-1"})
    said, err = finished.communicate(timeout=60)
    by_commands.sh("systemctl", "kill", "--signal=KILL", "caller-finish.scope")
    group = by_commands.sh("sh", "-c", "cat /proc/$(cat /run/prod.pid)/cgroup")

    assert json.loads(launched)["ready"], launched
    assert json.loads(said)["restoration"]["restored"], said + err
    assert "caller-finish" not in group
    assert "/system.slice/run-" in group
    assert by_commands.answers()


@pytest.mark.parametrize("how", [("kill", "--signal=STOP"), ("kill", "--signal=KILL"), ("freeze",)])
def test_caller_that_is_stopped_in_the_midst(limited: RigNode, how: tuple[str, ...]) -> None:
    """A launch whose caller is stopped or killed while production is down: the guard gives the node back in time."""
    request = limited.launch_request(lease_s=3, idle_s=6)
    launching = in_a_scope(limited, "launch", request)
    assert clock.wait_until(lambda: is_stopped(limited), 20, poll_s=0.1)

    limited.sh("systemctl", *how, "caller-launch.scope")

    assert clock.wait_until(lambda: limited.answers() and limited.read("record.json") is None, 40, poll_s=0.5)
    limited.sh("systemctl", "kill", "--signal=KILL", "caller-launch.scope")
    limited.sh("systemctl", "thaw", "caller-launch.scope")
    launching.kill()
    launching.communicate()


@pytest.mark.parametrize("how", [("kill", "--signal=STOP"), ("freeze",)])
def test_command_that_is_stopped_with_the_mutex(limited: RigNode, how: tuple[str, ...]) -> None:
    """Root's command itself stands still while production is down: the guard ends it and gives the node back."""
    launching = in_a_scope(limited, "launch", limited.launch_request(lease_s=3, idle_s=25))
    assert clock.wait_until(lambda: is_stopped(limited), 20, poll_s=0.1)
    unit = limited.sh("systemctl", "list-units", "--plain", "--no-legend", "run-*.service").split()[0]

    limited.sh("systemctl", *how, unit)

    assert clock.wait_until(lambda: limited.answers() and limited.read("record.json") is None, 40, poll_s=0.5)
    launching.communicate(timeout=30)
