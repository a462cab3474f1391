"""The engine under test: started in a group of its own, ended whole.

With systemd it is a transient unit: its control group is what is ended, and systemd enforces the deadline even when
all else is dead. Without, it is a process in a session of its own. A build that is an image is a container.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
from pathlib import Path

from tokenpeak.node.engine.container import LABEL, ContainerStart, EngineContainer
from tokenpeak.node.machine import clock, process, root_files, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, in_control_group
from tokenpeak.node.machine.state import Json, State, UnreadableError
from tokenpeak.node.machine.words import shown_output, shown_value
from tokenpeak.node.probe import chosen_boards
from tokenpeak.node.production.managers.systemd import parse_show
from tokenpeak.node.protocol.requests import LaunchRequest

FILE = "engine.json"
LOG = "engine.log"
ENVIRONMENT = "engine.env"
OUTPUT = "output.json"
"""Which trial the log and the samples are of, and what its API key follows from."""
KEPT_OF_REQUEST = ("trial_id", "holder", "secret", "key_nonce")


def has_systemd() -> bool:
    """Whether systemd runs this machine and this script may command it."""
    return Path("/run/systemd/system").is_dir() and os.geteuid() == 0


def trial_key(secret: bytes, trial_id: str, holder: str, nonce: str) -> str:
    """The API key of one launch: both sides derive it from the node's secret, so that it never travels.

    Sweeps number their trials alike: its holder and the nonce, which the controller draws, make each key differ.
    """
    message = json.dumps([trial_id, holder, nonce]).encode()
    return hmac.new(secret.strip(), message, hashlib.sha256).hexdigest()


def read_environment_file(path: str | None) -> dict[str, str]:
    """NAME=VALUE lines of a root-only file on the node, for tokens that no request may hold."""
    variables = {}
    for line in trust.read_secret(path, "tokenpeak_engine_env_file").splitlines() if path else []:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            variables[name.strip()] = value.strip()
    return variables


def declared_environment(declaration: Json) -> dict[str, str]:
    """The inventory's variables of an engine, with those of its file and of the chosen boards."""
    declared = declaration.get("engine") or {}
    env = {str(name): str(value) for name, value in (declared.get("env") or {}).items()}
    env.update(read_environment_file(declared.get("env_file")))
    return {**chosen_boards.environment(declaration), **env}


def environment_line(name: str, value: str) -> str:
    """A line of a systemd EnvironmentFile that gives exactly `value`."""
    escaped = value
    for special in '\\"$`':
        escaped = escaped.replace(special, "\\" + special)
    return f'{name}="{escaped}"\n'


def _not_started(request: LaunchRequest, reason: str) -> ScriptError:
    return ScriptError("engine", f"The engine {shown_value(request.argv[0])} cannot be started: {reason}")


class Engine:
    """The engine of a state folder, if any."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Where stdout and stderr go."""
        return self.state.path(LOG)

    @property
    def unit(self) -> str:
        """The transient unit's name; state folders of one machine don't share it."""
        return f"tokenpeak-engine-{self.state.digest}.service"

    @property
    def mark(self) -> str:
        """The mark that a process without a unit bears in its environment."""
        return f"engine-{self.state.digest}"

    def is_known(self) -> bool:
        """Whether one was started and not seen to its end, by its record or, where that is lost, by itself."""
        return self.state.has(FILE) or self._found() is not None

    def recorded(self) -> Json | None:
        """The record of it; where that is lost, what is there of it."""
        try:
            recorded = self.state.read(FILE)
        except UnreadableError:
            recorded = None
        return recorded if recorded and "unit" in recorded else self._found()

    def _found(self) -> Json | None:
        """An engine that runs without a record: its unit has a known name, its process a mark."""
        if has_systemd() and self._show().get("ActiveState") in ("active", "activating", "deactivating"):
            return {"unit": self.unit}
        if process.marked(self.mark, self._users()):
            return {"unit": None, "mark": self.mark}
        container = EngineContainer.left_over(self.state)
        return {"unit": None, "container": container.recorded} if container else None

    def _users(self) -> list[int]:
        """Whose processes may be the engine's besides this script's own: those of the declared user."""
        try:
            uid = trust.uid_of(str((self.state.declaration().get("engine") or {}).get("user") or ""))
        except ScriptError:
            return []
        return [uid] if uid else []

    def start(
        self, request: LaunchRequest, env: dict[str, str], declared: Json, in_container: ContainerStart | None
    ) -> int:
        """Start it with `argv` of the request, as a command or `in_container`; the leader's pid."""
        root_files.empty(self.log)
        output = {name: getattr(request, name) for name in KEPT_OF_REQUEST}
        self.state.write(OUTPUT, output, durable=False)
        if in_container is not None:
            return self._start_container(in_container, env, request)
        as_unit = has_systemd() and declared.get("isolation") != "process"
        uid = trust.uid_of(str(declared.get("user") or ""))
        started: Json = {"trial_id": request.trial_id, "unit": self.unit if as_unit else None, "uid": uid}
        if as_unit:
            # Recorded before it starts: whatever dies now, the unit's name is known.
            self.state.write(FILE, started)
            pid = self._start_unit(env, request, declared)
        else:
            whole = {**os.environ, **env}
            user = declared.get("user")
            try:
                self.child = process.start_detached(
                    request.argv,
                    log=self.log,
                    env=whole,
                    cwd=declared.get("cwd"),
                    user=str(user) if user else None,
                    mark=self.mark,
                )
            except KeyError:
                raise ScriptError(
                    "engine", f"tokenpeak_engine_user is {shown_value(user)}, which this node does not know."
                ) from None
            except OSError as error:
                raise _not_started(request, f"{error}.") from error
            pid = self.child.pid
        self.state.write(FILE, {**started, **process.identity(pid)})
        return pid

    def _start_container(self, made_of: ContainerStart, env: dict[str, str], request: LaunchRequest) -> int:
        container = EngineContainer.planned(self.state, made_of.build)
        started: Json = {"trial_id": request.trial_id, "unit": None}
        # Recorded before it is made: whatever dies now, its name is known, and which runtime has it.
        self.state.write(FILE, {**started, "container": container.recorded})
        labels = [f"--label={LABEL}.trial={request.trial_id}", f"--label={LABEL}.holder={request.holder}"]
        container.create(made_of.build, [*made_of.options, *labels], request.argv, env)
        self.state.write(FILE, {**started, "container": container.recorded})
        pid = container.start()
        if pid:
            self.state.write(FILE, {**started, "container": container.recorded, **process.identity(pid)})
        return pid

    def _container(self) -> EngineContainer | None:
        recorded = (self.recorded() or {}).get("container")
        return EngineContainer(self.state, recorded) if recorded else None

    def collect_log(self) -> None:
        """Have in `log` what it has printed so far, which a container's runtime keeps."""
        container = self._container()
        if container is not None:
            container.write_log(self.log)

    def _start_unit(self, env: dict[str, str], request: LaunchRequest, declared: Json) -> int:
        process.run(["systemctl", "reset-failed", self.unit])
        secrets = self.state.path(ENVIRONMENT)
        root_files.put(secrets, "".join(environment_line(name, value) for name, value in env.items()).encode(), 0o600)
        properties = {
            "EnvironmentFile": str(secrets),
            "StandardOutput": f"append:{self.log}",
            "StandardError": f"append:{self.log}",
            "KillMode": "control-group",
            # As long as `stop` waits: systemd must not kill it before.
            # systemd takes neither `0` for no time nor an exponent.
            "TimeoutStopSec": f"{max(1.0, request.engine_stop_s):.15g}",
            "NoNewPrivileges": "yes",
            "OOMScoreAdjust": "500",
            "LimitNOFILE": "1048576",
            **{str(key): str(value) for key, value in (declared.get("limits") or {}).items()},
        }
        properties["RuntimeMaxSec"] = f"{max(1.0, request.trial_deadline_s):.0f}"
        if declared.get("user"):
            properties["User"] = str(declared["user"])
        if declared.get("cwd"):
            properties["WorkingDirectory"] = str(declared["cwd"])
        options = [f"--property={name}={value}" for name, value in properties.items()]
        path = f"--setenv=PATH={os.environ.get('PATH', '/usr/bin:/bin')}"
        command = ["systemd-run", "--quiet", f"--unit={self.unit}", "--service-type=exec", path, *options, "--"]
        # systemd would put variables in place of `$NAME`.
        ran = process.run([*command, *(word.replace("$", "$$") for word in request.argv)], timeout_s=60)
        if ran.status != 0:
            raise _not_started(request, shown_output(ran.err))
        return int(self._show().get("MainPID", "0"))

    def _show(self) -> dict[str, str]:
        names = "ActiveState,MainPID,ControlGroup,ExecMainCode,ExecMainStatus,Result"
        return parse_show(process.run(["systemctl", "show", "--property", names, self.unit]).out)

    def is_running(self) -> bool:
        """Whether its leader lives."""
        if self.child is not None:
            return self.child.poll() is None
        return process.is_alive(self.recorded())

    def members(self) -> IsMember:
        """Which processes are the engine's now: its unit's control group, or its session with all descendants."""
        recorded = self.recorded() or {}
        if recorded.get("unit"):
            return in_control_group(self._show().get("ControlGroup", ""))
        if recorded.get("container") and recorded.get("pid"):
            return EngineContainer(self.state, recorded["container"]).members(int(recorded["pid"]))
        pids = set(process.members(recorded)) if recorded.get("pid") else set()
        return lambda pid: pid in pids

    def exit_status(self) -> int | None:
        """How the leader ended (negative: the signal); None while it runs or when nobody saw it."""
        if self.child is not None:
            return self.child.poll()
        recorded = self.recorded()
        if recorded and recorded.get("container"):
            return EngineContainer(self.state, recorded["container"]).exit_status()
        if not recorded or not recorded.get("unit"):
            return None
        shown = self._show()
        if shown.get("ActiveState") in ("active", "activating", "deactivating") or "ExecMainStatus" not in shown:
            return None
        status = int(shown["ExecMainStatus"])
        # ExecMainCode 1 is CLD_EXITED; 2 and 3 are ends by a signal.
        return status if shown.get("ExecMainCode") == "1" else -status

    def stop(self, grace_s: float) -> list[int]:
        """End it with everything it started; the pids that are left even after SIGKILL (normally none)."""
        recorded = self.recorded()
        if not recorded:
            self.state.remove_if_possible(FILE)
            return []
        left: list[int] = []
        is_gone = True
        if recorded.get("unit"):
            left = self._stop_unit(recorded["unit"], grace_s)
        if recorded.get("container"):
            left, is_gone = EngineContainer(self.state, recorded["container"]).end(recorded, grace_s, self.log)
        elif recorded.get("pid"):
            users = process.one_user(recorded["uid"]) if recorded.get("uid") else None
            left += process.stop_group(recorded, 0.0 if recorded.get("unit") else grace_s, users)
        if recorded.get("mark"):
            left += process.stop_marked(recorded["mark"], grace_s, self._users())
        # A container that its runtime would not remove stays known: the next look at it ends it.
        if not left and is_gone:
            self.state.remove_if_possible(FILE)
            self.state.remove_if_possible(ENVIRONMENT)
        return left

    def _stop_unit(self, unit: str, grace_s: float) -> list[int]:
        group = self._show().get("ControlGroup", "")
        process.run(["systemctl", "stop", "--no-block", unit])
        members = Path("/sys/fs/cgroup") / group.lstrip("/") / "cgroup.procs"

        def pids() -> list[int]:
            try:
                return [int(line) for line in members.read_text().split()] if group else []
            except OSError:
                return []

        if not clock.wait_until(lambda: not pids(), grace_s):
            process.run(["systemctl", "kill", "--signal=SIGKILL", unit])
            clock.wait_until(lambda: not pids(), process.KILL_TIMEOUT_S)
        left = pids()
        if not left:
            process.run(["systemctl", "stop", unit], timeout_s=30)
            process.run(["systemctl", "reset-failed", unit])
        return left
