"""Survey of a machine that TokenPeak is not on yet: its boards, its engines, and what serves a model at a port.

Who starts and stops a server follows from the control group of its process, which its manager made, and never from its
name. Changes nothing, and leaves nothing there. Run as root it sees every process; as another user that user's own.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, Sequence

from tokenpeak.node.bundle import own_digest
from tokenpeak.node.engine import installed, serving
from tokenpeak.node.engine.builds import DOCKER, PODMAN
from tokenpeak.node.engine.installed import installed_version
from tokenpeak.node.machine import process, process_files, sockets
from tokenpeak.node.machine.containers import FORWARDERS, SETTINGS, Runtime, labels_of
from tokenpeak.node.machine.process_files import (
    command_line,
    command_lines,
    control_group,
    program,
    shown_in_time,
    user_ids,
)
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import SECRET, hidden_env, shown_command, without_secrets
from tokenpeak.node.probe.probe import gpus
from tokenpeak.node.protocol.answers import SurveyAnswer, as_json
from tokenpeak.node.protocol.frame import framed
from tokenpeak.node.protocol.parts import FoundEngine, FoundServer, Gpu, picked

CONTAINER = re.compile(r"(?:docker|libpod|crio)[-/]([0-9a-f]{64})|/docker/([0-9a-f]{64})")
SYSTEM_UNIT = re.compile(r"^/system\.slice/(?:.*/)?([^/]+\.service)(?:/|$)")
USER_UNIT = re.compile(r"/user@(\d+)\.service/(?:[^/]+\.slice/)*([^/]+\.service)(?:/|$)")
KEPT_ENV = re.compile(r"^(VLLM_|CUDA_|NCCL_|HF_|TRANSFORMERS_|TORCH|OMP_|ROCR_|HIP_|LD_LIBRARY_PATH$|TOKENPEAK_SIM_)")
_COMPOSE = "com.docker.compose"
_SIMULATOR = "tokenpeak.sim.engine"
_MODULES = ("vllm.entrypoints", _SIMULATOR)
PORT = 8000
_LOCAL = ("0.0.0.0", "127.0.0.1", "::", "::ffff:127.0.0.1")  # noqa: S104 — where others listen
_SHOWN = 1000


def is_engine(words: list[str]) -> bool:
    """Whether a command line is vLLM's server itself, and not a shell, sudo or container client that starts it."""
    program = list(words)
    if program and Path(program[0]).name.startswith("python"):
        program = program[1:]
        while program and program[0].startswith("-") and program[0] != "-m":
            program = program[1:]
        if program[:1] == ["-m"]:
            return any(word.startswith(_MODULES) for word in program[1:2])
    return len(program) > 1 and Path(program[0]).name == "vllm" and program[1] == "serve"


def model_of(words: list[str]) -> str | None:
    """The model that a command line of vLLM loads: its first argument after `serve`, or the one of --model."""
    for place, word in enumerate(words):
        if word == "--model" and place + 1 < len(words):
            return words[place + 1]
        if word.startswith("--model="):
            return word.partition("=")[2]
        if word == "serve" and place + 1 < len(words) and not words[place + 1].startswith("-"):
            return words[place + 1]
    return None


def port_of(words: list[str]) -> int | None:
    """The port at which a command line of vLLM has it listen: vLLM's own where none is given, None for no number."""
    given = next((word.partition("=")[2] for word in words if word.startswith("--port=")), None)
    if given is None:
        given = next((after for word, after in zip(words, words[1:]) if word == "--port"), str(PORT))
    return int(given) if re.fullmatch(r"[1-9]\d{0,4}", given) and int(given) < 1 << 16 else None


def is_demonstration(words: list[str]) -> bool:
    """Whether a command line is the server of a simulated node of TokenPeak's, on a loopback address of its own."""
    host = next((after for word, after in zip(words, words[1:]) if word == "--host"), "")
    return _SIMULATOR in words and host.startswith("127.") and host not in _LOCAL


@dataclass
class Machine:
    """Engines and containers that run on a machine at one moment."""

    runtimes: list[Runtime]
    containers: dict[str, tuple[Runtime, Json]]
    """Running containers by id."""
    engines: dict[int, list[str]]
    """Command lines of vLLM's servers by pid; of those that started each other, the first. No simulated node's."""

    @classmethod
    def look(cls) -> Machine:
        """The machine now."""
        settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
        names = [name for name in (DOCKER, PODMAN) if shutil.which(name)]
        # Podman's first command on a machine would make its storage there.
        storage = Path("/var/lib/containers/storage" if os.geteuid() == 0 else "~/.local/share/containers/storage")
        if not storage.expanduser().is_dir():
            names = [name for name in names if name != PODMAN]
        runtimes = [Runtime(name, None, "--probe", settings) for name in names]
        runtimes = [runtime for runtime in runtimes if runtime.run("ps", "--quiet").status == 0]
        containers = {str(one["Id"]): (runtime, one) for runtime in runtimes for one in _running(runtime)}
        lines = command_lines(process_files.pids())
        servers = {pid: words for pid, words in lines.items() if is_engine(words) and not is_demonstration(words)}
        parents = {each.pid: each.parent for each in process_files.all_processes()}
        first = {pid: words for pid, words in servers.items() if parents.get(pid) not in servers}
        return cls(runtimes=runtimes, containers=containers, engines=first)

    def behind(self, port: int, listeners: Sequence[sockets.Listener]) -> tuple[list[FoundServer], int | None]:
        """The servers at a port, and the pid of the program in front of it where that is another one.

        Behind a proxy it is every engine of the machine that this user may see into. Without a listener, or with one
        that this user may not see, it is the container that has published the port, else the engines whose port it is.
        """
        listening = sorted({pid for one in listeners for pid in one.pids})
        leaders = {pid: self._leader(pid) for pid in listening}
        engines = sorted({leader for leader in leaders.values() if leader is not None})
        if engines:
            return self._grouped(engines), None
        published = [one for one in self.containers.values() if port in _ports(one[1])]
        hidden = not listening or any(Path(program(pid) or "").name in FORWARDERS for pid in listening)
        if published and hidden:
            leader = next((pid for pid in self.engines if self._container(pid) is published[0]), None)
            if leader is not None:
                return self._grouped([leader]), None
            if not self.engines:
                return [_of_container(*published[0], [])], None
        if listening and not self.engines:
            return self._grouped(listening[:1]), None
        hidden_uids = {one.uid for one in listeners if not one.pids}
        seen = sorted(pid for pid in self.engines if self._is_seen(pid) or user_ids(pid) & hidden_uids)
        if listening:
            return self._grouped(seen), listening[0]
        return self._grouped([pid for pid in seen if port in self._ports_of(pid)] or seen), None

    def _is_seen(self, pid: int) -> bool:
        """Whether this user may see into an engine, which also takes what may stop it: its container, or its user."""
        return os.geteuid() in {0, *user_ids(pid)} or self._container(pid) is not None

    def _ports_of(self, pid: int) -> set[int]:
        """The ports of this machine at which an engine is to answer."""
        container = self._container(pid)
        published = _ports(container[1]) if container else set()
        own = port_of(self.engines.get(pid) or [])
        return published or ({own} if own is not None and pid in self.engines else set())

    def _leader(self, pid: int) -> int | None:
        """The engine that a process is, or is a part of."""
        for engine in self.engines:
            if pid == engine or process.is_member_of(engine)(pid):
                return engine
        return None

    def _grouped(self, pids: list[int]) -> list[FoundServer]:
        """The servers that these processes belong to, each once."""
        servers: dict[tuple[str, str | None, str | None], FoundServer] = {}
        for pid in pids:
            one = replace(self._server(pid), ports=tuple(sorted(self._ports_of(pid))))
            servers.setdefault((one.manager, one.unit or str(pid), one.file), one)
        return list(servers.values())

    def _container(self, pid: int) -> tuple[Runtime, Json] | None:
        match = CONTAINER.search(control_group(pid))
        if match:
            return self.containers.get(match[1] or match[2])
        leaders = {int((one[1].get("State") or {}).get("Pid") or 0): one for one in self.containers.values()}
        parents = {each.pid: each.parent for each in process_files.all_processes()}
        while pid:
            if pid in leaders:
                return leaders[pid]
            pid = parents.get(pid, 0)
        return None

    def _server(self, pid: int) -> FoundServer:
        words = self.engines.get(pid) or command_line(pid)
        group = control_group(pid)
        if "kubepods" in group:
            notes = ("it is a pod: write unit: deployment/NAME and its namespace",)
            return FoundServer(manager="kubernetes", pid=pid, model=model_of(words), notes=notes, env={})
        if container := self._container(pid):
            return _of_container(*container, words)
        made = FoundServer(
            argv=tuple(without_secrets(words)),
            pid=pid,
            runs_as=user_of(pid),
            model=model_of(words),
            engine=_of_words(pid, words),
            env={},
        )
        environment = _environment_of(pid)
        if "SUPERVISOR_PROCESS_NAME" in environment:
            name, own = environment["SUPERVISOR_PROCESS_NAME"], environment.get("SUPERVISOR_GROUP_NAME")
            return replace(made, manager="supervisord", unit=name if own in (None, name) else f"{own}:{name}")
        if unit := USER_UNIT.search(group):
            return replace(made, manager="systemd", unit=unit[2], user=_name_of(int(unit[1])))
        if unit := SYSTEM_UNIT.match(group):
            engine = made.engine or _of_words(pid, _started_by(unit[1]))
            return replace(made, manager="systemd", unit=unit[1], engine=engine)
        variables = {name: value for name, value in environment.items() if _is_kept(name)}
        env = hidden_env(variables)
        whole = {"command line": list(made.argv) == words, "environment": env == variables}
        return replace(
            made,
            manager="process",
            cwd=_folder_of(pid),
            env=env,
            notes=tuple(
                f"its {part} has what may be secret, which is left out here"
                for part, is_whole in whole.items()
                if not is_whole
            ),
        )


def user_of(pid: int) -> str | None:
    """The user who runs a process; None for root."""
    users = user_ids(pid) - {0}
    return _name_of(min(users)) if users else None


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; nothing where it is hidden."""
    raw = shown_in_time([pid], "environ").get(pid, b"")
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name}


def _folder_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def _is_kept(name: str) -> bool:
    return bool(KEPT_ENV.match(name)) and not SECRET.search(name)


def _running(runtime: Runtime) -> Iterator[Json]:
    listed = runtime.run("ps", "--quiet", "--no-trunc").out.split()
    ran = runtime.run("inspect", "--type", "container", "--", *listed) if listed else None
    yield from json.loads(ran.out) if ran is not None and ran.status == 0 else ()


def _ports(container: Json) -> set[int]:
    """The ports of the machine that lead to a container."""
    published = (container.get("NetworkSettings") or {}).get("Ports") or {}
    ports = [str(place.get("HostPort") or "") for places in published.values() for place in places or ()]
    return {int(port) for port in ports if port.isdigit()}


def _of_words(pid: int, words: list[str]) -> FoundEngine | None:
    """The engine that a process was started from."""
    for word in words:
        if Path(word).name == "vllm" and word.startswith("/"):
            return FoundEngine(command=(word, "serve"), version=installed_version(Path(word)))
    beside = Path(words[0] if words and words[0].startswith("/") else program(pid) or "/").with_name("vllm")
    if beside.is_file():
        return FoundEngine(command=(str(beside), "serve"), version=installed_version(beside))
    return None


def _started_by(unit: str) -> list[str]:
    """The command of a unit, of which the process that serves need not show anything."""
    shown = process.run(["systemctl", "show", "--property", "ExecStart", "--value", "--", unit]).out
    match = re.search(r"argv\[\]=(.*?) ; ", shown)
    return match[1].split() if match else []


def _of_container(runtime: Runtime, container: Json, words: list[str]) -> FoundServer:
    """Production that is a container, or a service of a Compose file."""
    config = container.get("Config") or {}
    name = str(container.get("Name") or container.get("Id")).lstrip("/")
    mounts = [
        f"{one['Source']}:{one['Destination']}" + ("" if one.get("RW", True) else ":ro")
        for one in container.get("Mounts") or ()
        if one.get("Source") and one.get("Destination")
    ]
    engine = FoundEngine(
        image=str(config.get("Image") or container.get("ImageName")),
        runtime=runtime.name,
        mounts=tuple(mounts),
        user=str(config.get("User")) if config.get("User") else None,
    )
    argv = words or [str(word) for word in (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))]
    made = FoundServer(
        manager=runtime.name,
        unit=name,
        argv=tuple(without_secrets(argv)),
        pid=int((container.get("State") or {}).get("Pid") or 0) or None,
        model=model_of(argv),
        engine=engine,
        env={},
        notes=tuple(_unit_notes(runtime.name, name)),
    )
    if (container.get("HostConfig") or {}).get("AutoRemove"):
        made = replace(
            made, notes=(*made.notes, "it was started with --rm, so a stop would delete it: start it without")
        )
    labels = labels_of(container)
    service, project = labels.get(f"{_COMPOSE}.service"), labels.get(f"{_COMPOSE}.project")
    if not service:
        return made
    # An image that Compose built has the labels of a service; which file it is of is a container's own.
    own = runtime.own_labels(container)
    if not {f"{_COMPOSE}.project.config_files", f"{_COMPOSE}.project.working_dir"} & {*own}:
        return made
    files = str(own.get(f"{_COMPOSE}.project.config_files") or "").split(",")
    file = (
        files[0]
        if Path(files[0]).is_absolute()
        else str(Path(own.get(f"{_COMPOSE}.project.working_dir") or "/", files[0]))
    )
    return replace(made, manager="compose", unit=service, project=project, file=file)


def _unit_notes(runtime: str, container: str) -> Iterator[str]:
    """A note for each unit of systemd whose file names the container: that one is who starts it."""
    for folder in (Path("/etc/systemd/system"), Path("/etc/containers/systemd")):
        for path in sorted(folder.glob("*.service")) + sorted(folder.glob("*.container")):
            try:
                text = path.read_text(errors="replace")
            except OSError:
                continue
            if re.search(rf"{runtime}\b", text) and re.search(rf"\b{re.escape(container)}\b", text):
                yield f"{path.name} starts this container: write manager: systemd and unit: {path.stem}.service instead"


def survey(port: int = PORT) -> SurveyAnswer:
    """The machine as it is, and what serves on it."""
    here = Machine.look()
    listeners = [one for one in sockets.listening_at(port) if not _is_of_a_demonstration(one)]
    servers, front = here.behind(port, listeners)
    account = pwd.getpwuid(os.geteuid())
    own = [each.engine for each in servers if each.engine is not None]
    return SurveyAnswer(
        user=os.environ.get("SUDO_USER") or account.pw_name,
        is_root=os.geteuid() == 0,
        home=account.pw_dir,
        python=sys.executable,
        gpus=tuple(picked(Gpu, gpu) for gpu in gpus()),
        url=_url(port, listeners),
        servers=tuple(servers),
        # A container's port may be led to it without a listener.
        is_answering=bool(listeners) or serving.request(f"{_url(port, listeners)}/v1/models").status != 0,
        served_name=serving.served_model(_url(port, listeners)),
        listens_as=None if front is None else user_of(front),
        front=None if front is None else shown_command(without_secrets(command_line(front)), _SHOWN),
        engines=tuple(dict.fromkeys([*own, *installed.found(here.runtimes)])),
    )


def _is_of_a_demonstration(listener: sockets.Listener) -> bool:
    """Whether a simulated node's server listens there, as far as this user may see: by its address, if no process."""
    is_own_loopback = listener.address.startswith("127.") and listener.address not in _LOCAL
    return is_own_loopback and all(is_demonstration(command_line(pid)) for pid in listener.pids)


def _url(port: int, listeners: list[sockets.Listener]) -> str:
    """Where this machine itself reaches what listens on the port."""
    addresses = [one.address for one in listeners]
    is_loopback = not addresses or any(address in _LOCAL for address in addresses)
    return serving.base_url("127.0.0.1" if is_loopback else addresses[0], port)


def main() -> None:
    """Print the survey as an answer; the port may be given."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    os.chdir("/")
    print(framed({**as_json(survey(port)), "script": own_digest()}), end="", flush=True)
