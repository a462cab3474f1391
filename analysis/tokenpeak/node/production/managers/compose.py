"""Production as a service of a Compose file."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from tokenpeak.node.machine import process, trust
from tokenpeak.node.machine.containers import of_containers
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S, Command
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile

BY_US = "# Written by TokenPeak's apply; `make rollback` takes it back.\n"
_CONVENTIONAL = ("compose", "docker-compose")
"""Names of Compose files whose override Compose reads by itself."""
_NO_COMPOSE = ("unknown shorthand flag: 'f'", "'compose' is not a docker command", "unknown command: docker compose")
"""What a Docker without Compose v2 says of `docker compose`."""


def override_of(file: Path) -> Path:
    """Where an apply's override of a Compose file is."""
    word = "override" if file.stem in _CONVENTIONAL else "tokenpeak"
    return file.with_name(f"{file.stem}.{word}{file.suffix}")


class ComposeManager(FileManager):
    """declared: file (the Compose file), unit (the service), project.

    Of its definition, own: file (the override) and content; seen: the service as Compose resolves it.
    """

    USER_AS = "user: of the service"
    doubled = "$"
    is_in_image = is_user_of_image = True

    def compose(self, *words: str) -> list[str]:
        """The command line of these words, with the override of an apply where there is one."""
        file = Path(str(self.needed("file")))
        override = override_of(file)
        is_ours = trust.read_foreign(override, len(BY_US), follow=False) == BY_US.encode()
        project = ["-p", str(self.declared["project"])] if "project" in self.declared else []
        return ["docker", "compose", "-f", str(file), *(["-f", str(override)] if is_ours else []), *project, *words]

    def do(self, argv: list[str], timeout_s: float = 30.0) -> process.Ran:
        """As any manager; where Compose v2 is not there, that is said."""
        with _needing_v2():
            return super().do(argv, timeout_s)

    def ask(self, argv: list[str]) -> process.Ran:
        """As any manager; where Compose v2 is not there, that is said."""
        with _needing_v2():
            return super().ask(argv)

    def files(self) -> list[Path]:
        """The Compose file, which may start anything as root, and its override."""
        file = Path(str(self.needed("file")))
        return [file, override_of(file)]

    def members(self) -> IsMember:
        """The processes of the service's containers, and Docker's forwarders."""
        ids = self.ask(self.compose("ps", "-q", self.name)).out.split()
        containers = json.loads(self.ask(["docker", "inspect", "--type", "container", "--", *ids]).out) if ids else []
        return of_containers(containers, 0)

    def is_running(self) -> bool:
        """Whether Compose lists a running container of the service."""
        ran = self.ask(self.compose("ps", "--status", "running", "-q", self.name))
        return bool(ran.out.strip())

    def definition(self) -> Json:
        """The resolved Compose file, to show what was there."""
        return {"config": process.run(self.compose("config")).out}

    def stop(self) -> None:
        """Stop the service's containers, which then stay for `start`."""
        self.do(self.compose("stop", self.name), STOP_TIMEOUT_S)

    def start(self, recorded: Json) -> None:
        """Start the same containers again; where somebody has removed them, one is made, of an image that is there."""
        unit = self.name
        is_left = bool(self.ask(self.compose("ps", "--all", "-q", unit)).out.strip())
        anew = ("up", "--detach", "--no-deps", "--no-build", "--pull", "never")
        self.do(self.compose(*(["start"] if is_left else anew), unit), START_TIMEOUT_S)

    def describe(self) -> Json:
        """The override, and the service with it."""
        path = self.definition_path()
        content = KeptFile(path).read()
        if content is not None and not content.startswith(BY_US):
            raise ScriptError(
                "definition", f"{path} is there and is not ours: put what it says into {self.needed('file')}."
            )
        resolved = json.loads(self.do(self.compose("config", "--format", "json")).out)
        service = (resolved.get("services") or {}).get(self.name)
        if service is None:
            raise ScriptError("definition", f"{self.needed('file')} has no service {self.unit}.")
        return {"own": {"file": str(path), "content": content}, "seen": {"service": service}}

    def command(self, described: Json) -> Command:
        """Entry point (of the image, where the service has none) and command, environment and image."""
        service = described["seen"]["service"]
        image = service.get("image")
        entry = service.get("entrypoint")
        if entry is None:
            ran = process.run(
                ["docker", "image", "inspect", "--format", "{{json .Config.Entrypoint}}", "--", str(image)]
            )
            entry = (json.loads(ran.out) if ran.status == 0 else None) or []
        env = {name: self.meaning(value) for name, value in _environment(service).items()}
        return self.as_command([*entry, *(service.get("command") or [])], env, image)

    def user(self, described: Json, command: Command) -> str | None:
        """`user` of the service."""
        named = described["seen"]["service"].get("user")
        return None if named in (None, "") else str(named)

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The override of this command, written beside its place. JSON is YAML."""
        was = self.command(described)
        if was.words[: was.program] == command.words[: command.program]:
            entry = len(described["seen"]["service"].get("entrypoint") or was.words[: was.program])
            own = {"command": list(command.words[entry:])}
        else:
            own = {"entrypoint": list(command.words[:1]), "command": list(command.words[1:])}
        if gone := [name for name in was.env if name not in command.env]:
            raise ScriptError("definition", f"An override takes no variable away ({', '.join(gone)}): remove it first.")
        override = json.loads((described["own"]["content"] or BY_US + "{}")[len(BY_US) :])
        env = _environment((override.get("services") or {}).get(self.unit) or {})
        env.update({name: self.literal(value) for name, value in command.env.items() if was.env.get(name) != value})
        service: Json = {**own, **({"environment": env} if env else {})}
        if command.image != was.image:
            service["image"] = None if command.image is None else self.literal(command.image)
        text = json.dumps({"services": {str(self.unit): service}}, indent=1)
        found = {**described["own"], "content": f"{BY_US}{text}\n"}
        self.prepare_back(found)
        return found

    def reload(self) -> None:
        """Have Compose make the service's container by the override that is there now, stopped."""
        self.do(self.compose("up", "--no-start", "--no-deps", "--no-build", self.name), START_TIMEOUT_S)

    def is_loaded(self) -> bool:
        """Whether Compose takes the file with its override."""
        return process.run(self.compose("config", "--quiet")).status == 0

    def place(self, own: Json) -> str:
        """The service, and the override where there is one."""
        name = f"service {self.unit} of {self.needed('file')}"
        return f"{name}, overridden by {own['file']}" if own["content"] is not None else name

    def definition_path(self) -> Path:
        """Where the override is."""
        return override_of(Path(str(self.needed("file"))))


def _environment(service: Json) -> dict[str, str]:
    """The variables of a service as Compose keeps them."""
    return {str(name): str(value) for name, value in (service.get("environment") or {}).items() if value is not None}


@contextmanager
def _needing_v2() -> Iterator[None]:
    """Have the error of a command that wants Compose v2 name it."""
    try:
        yield
    except ScriptError as error:
        if not any(words in error.text for words in _NO_COMPOSE):
            raise
        raise ScriptError(
            error.code,
            f"{error.text} Manager compose needs Compose v2 (`docker compose`), and docker-compose v1 is not "
            "supported: install the plugin, or declare manager docker with the container's name as unit.",
        ) from error
