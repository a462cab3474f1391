"""First inventory of hosts from a survey of them: the YAML that a user goes on from, with a comment for each doubt."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import SurveyAnswer
from tokenpeak.node.protocol.parts import FoundEngine, FoundServer, Gpu
from tokenpeak.sweep.inventory.checks import UNSETTLED
from tokenpeak.sweep.inventory.survey import Surveyed
from tokenpeak.sweep.inventory.variables_text import Template, variables_yaml

_SCHEMA = "# yaml-language-server: $schema=../../group_vars.schema.json\n---\n"
_FAMILIES = {
    "7.0": "volta",
    "7.5": "turing",
    "8": "ampere",
    "8.9": "ada",
    "9": "hopper",
    "10": "blackwell",
    "12": "blackwell",
}
"""Compute capability, or its first number → the sweep grid-NAME that is a sensible first one."""
_ENGINE = FoundEngine(command=("/opt/vllm/bin/vllm", "serve"))
_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_CPU_KV_CACHE, _CPU_KV_CACHE_GIB = "VLLM_CPU_KVCACHE_SPACE", "4"
_OWN_STATE = ".local/state/tokenpeak-node"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable of a host, and the comment in front of it."""

    name: str
    value: Any
    comment: str = ""
    is_guess: bool = False
    """The comment says what a person has to settle before anything is launched or stopped: it is refused until then."""


def first_inventory(
    hosts: Sequence[Surveyed], written_by: str, *, model: str | None = None, engine: str | None = None
) -> tuple[str, str]:
    """The text of hosts.yml and of group_vars/all.yml: what all hosts share goes into the latter.

    `model` and the program `engine` are used in place of those that were found.
    """
    variables = {host.name: {one.name: one for one in variables_of(host, model, engine)} for host in hosts}
    first = next(iter(variables.values()))
    own_names = (
        "ansible_host",
        *(name for name in first if any(own.get(name) != first[name] for own in variables.values())),
    )
    shared = {name: one for name, one in first.items() if name not in own_names}
    entries = []
    for name, own in variables.items():
        entries.append(f"    {_key(name)}:\n")
        entries += [_indented(_text(one), 6) for key, one in own.items() if key not in shared]
    written_by = one_line(written_by)
    hosts_yml = f"---\n# {written_by}\nall:\n  hosts:\n{''.join(entries)}"
    return hosts_yml, f"{_SCHEMA}# {written_by}\n{''.join(_text(one) for one in shared.values())}"


def default_sweep(gpus: Sequence[Gpu]) -> str:
    """A first sweep for boards; `quick` for those that none was made for."""
    if not gpus:
        return "quick"
    first = gpus[0]
    if first.compute_capability is None:
        return "grid-cdna" if "AMD" in first.name or "Instinct" in first.name else "quick"
    family = _FAMILIES.get(first.compute_capability) or _FAMILIES.get(first.compute_capability.split(".")[0])
    return f"grid-{family}" if family else "quick"


def variables_of(host: Surveyed, model: str | None = None, engine: str | None = None) -> Iterator[Variable]:
    """The variables of a host that was looked at, in the order in which they are written."""
    assert host.answer is not None
    answer = host.answer
    server = answer.servers[0] if answer.servers else None
    if host.is_local:
        yield Variable(name="ansible_connection", value="local", comment="This machine itself, without SSH.")
        yield Variable(name="ansible_python_interpreter", value=Template("{{ ansible_playbook_python }}"))
    else:
        yield Variable(name="ansible_host", value=host.name)
        user = host.user or (answer.user if answer.user != "root" else None)
        if user:
            yield Variable(name="ansible_user", value=user)
    if answer.is_root and answer.user != "root":
        yield Variable(name="ansible_become", value=True, comment="By sudo, which asked for no password.")
    yield Variable(name="tokenpeak_python", value=answer.python)
    yield _state_folder(answer)
    yield Variable(name="tokenpeak_default_sweep", value=default_sweep(answer.gpus))
    if model is None:
        yield from _model(answer, server)
    else:
        # A program of the machine itself, which may be given, sees no mounts.
        yield from _given_model(model, answer, server, is_mounted=engine is None)
    if engine is None:
        yield from _engine(answer, server)
    else:
        yield Variable(name="tokenpeak_engine_command", value=[engine, "serve"])
    yield _engine_env(answer, server)
    if server is not None and server.runs_as and answer.is_root:
        yield Variable(
            name="tokenpeak_engine_user", value=server.runs_as, comment="Whom the engine runs as: who runs production."
        )
    address = Template("{{ ansible_host }}") if host.address == host.name else host.address
    yield Variable(
        name="tokenpeak_host",
        value="127.0.0.1" if host.is_local else address,
        comment="Where the engine listens and the load is sent to: let only the load host reach this port.",
    )
    yield Variable(name="tokenpeak_port", value=8099)
    yield production(answer)
    yield _facts(answer)


def _state_folder(answer: SurveyAnswer) -> Variable:
    if answer.is_root:
        return Variable(name="tokenpeak_state_dir", value="/var/lib/tokenpeak")
    return Variable(
        name="tokenpeak_state_dir",
        value=str(PurePosixPath(answer.home) / _OWN_STATE),
        comment="In the home of a user without root, who can borrow only what is that user's own.",
    )


def _model(answer: SurveyAnswer, server: FoundServer | None) -> Iterator[Variable]:
    loaded, served = server.model if server else None, answer.served_name
    is_path = bool(loaded) and str(loaded).startswith("/")
    name = (
        loaded
        if loaded and not is_path
        else served
        if served and "/" in served and not served.startswith("/")
        else None
    )
    comment, is_guess = "", name is None
    if name is None:
        name = PurePosixPath(str(loaded)).name if is_path else served or _MODEL
        comment = "Its name on the hub was not found: write it, so that its shape is known."
        if is_path:
            comment += " Where it has none, leave the name of its folder: a probe reads its shape there."
        if not (loaded or served):
            comment = "Nothing that serves a model was found: write the model to tune for."
    yield Variable(
        name="tokenpeak_model", value={"name": name, "served_name": served or name}, comment=comment, is_guess=is_guess
    )
    if is_path:
        yield Variable(name="tokenpeak_model_path", value=loaded)


def _given_model(
    model: str, answer: SurveyAnswer, server: FoundServer | None, *, is_mounted: bool
) -> Iterator[Variable]:
    """A name on the hub, or the folder of a model; by the name that production serves it under, it is production's."""
    loaded = str(server.model) if server and server.model else ""
    is_own = loaded.startswith("/") and model == answer.served_name
    given = _in_container(model, server) if is_mounted else model
    folder = given if model.startswith("/") else loaded if is_own else ""
    name = PurePosixPath(folder).name if folder else model
    served_name = name if model.startswith("/") else model
    yield Variable(name="tokenpeak_model", value={"name": name, "served_name": served_name})
    if folder:
        yield Variable(name="tokenpeak_model_path", value=folder)


def _in_container(folder: str, server: FoundServer | None) -> str:
    """Where a folder of the machine is in production's container; as it is without a mount that has it."""
    engine = server.engine if server else None
    for mount in engine.mounts if engine and engine.image else ():
        source, place, *_ = mount.split(":")
        if PurePosixPath(folder).is_relative_to(source):
            return str(PurePosixPath(place) / PurePosixPath(folder).relative_to(source))
    return folder


def _engine(answer: SurveyAnswer, server: FoundServer | None) -> Iterator[Variable]:
    own = server.engine if server else None
    engines = [own] if own else list(answer.engines[:1])
    others = [_shown(one) for one in answer.engines if one not in engines]
    comment = f"Also there: {'; '.join(others)}." if others else ""
    is_guess = not engines
    if not engines:
        engines, comment = [_ENGINE], "No vLLM was found: write its command, or an image in tokenpeak_engines."
    engine = engines[0]
    if engine.image is None:
        if engine.version:
            yield Variable(name="tokenpeak_engine_version", value=engine.version)
        yield Variable(name="tokenpeak_engine_command", value=list(engine.command), comment=comment, is_guess=is_guess)
        return
    build: dict[str, Any] = {"image": engine.image, "runtime": engine.runtime}
    optional = {"version": engine.version, "mounts": list(engine.mounts), "user": engine.user}
    build |= {name: value for name, value in optional.items() if value}
    yield Variable(name="tokenpeak_engines", value={"found": build}, comment=comment)


def _engine_env(answer: SurveyAnswer, server: FoundServer | None) -> Variable:
    env = {"VLLM_NO_USAGE_STATS": "1"}
    if answer.gpus:
        return Variable(name="tokenpeak_engine_env", value=env)
    space = (dict(server.env) if server else {}).get(_CPU_KV_CACHE, _CPU_KV_CACHE_GIB)
    return Variable(
        name="tokenpeak_engine_env",
        value={**env, _CPU_KV_CACHE: space},
        comment="GiB for the KV cache: without it vLLM takes nine tenths of the machine's memory, or does not start.",
    )


def production(answer: SurveyAnswer) -> Variable:
    """What production is: one unit or container, several together, a process, or nothing."""
    doubts = [note for server in answer.servers for note in server.notes]
    value: dict[str, Any]
    if not answer.servers:
        value = {"manager": "none"}
        doubts.append(
            f"Nothing serves at {answer.url}. What should be stopped during a trial, if anything, belongs here"
        )
    elif len(answer.servers) > 1:
        value = _several(answer.servers, doubts)
    else:
        value = _one(answer, doubts)
        if not answer.is_root and value["manager"] == "systemd" and "user" not in value:
            doubts.append(f"{value['unit']} is a unit of the system, which root alone may stop")
    if value["manager"] != "none":
        value["url"] = answer.url
        if not answer.is_answering:
            doubts.append(
                f"Nothing answers at {answer.url}. Where production has another port, remove this inventory and give "
                "that one by --port; else start it first"
            )
        elif answer.served_name is None:
            doubts.append(
                f"{answer.url} names no model: it may want a key (api_key_file), or answer something else "
                "(answers_with)"
            )
    is_guess = bool(doubts) and value["manager"] != "none"
    if answer.front:
        doubts.append(f"In front of it, at {answer.url}: {answer.front}")
        if answer.listens_as:
            value["listens_as"] = answer.listens_as
    comment = ". ".join(doubts) + ("." if doubts else "")
    return Variable(name="tokenpeak_production", value=value, comment=comment, is_guess=is_guess)


def _one(answer: SurveyAnswer, doubts: list[str]) -> dict[str, Any]:
    server = answer.servers[0]
    if server.manager == "process":
        doubts.append(
            f"Nobody manages {_with_ports(server)}, so nobody could start it again. Give it a unit, or let TokenPeak "
            "keep it: end it, and set tokenpeak_produce: true, by which `tokenpeak probe` starts it as written here"
        )
        argv = list(server.argv)
        # Root alone may become another user.
        if server.runs_as and (answer.is_root or server.runs_as != answer.user):
            argv = ["runuser", "-u", server.runs_as, "--", *argv]
        kept = {"argv": argv, **({"env": dict(server.env)} if server.env else {})}
        return {"manager": "command", "process": kept | ({"cwd": server.cwd} if server.cwd else {})}
    value: dict[str, Any] = {"manager": server.manager}
    value |= {name: getattr(server, name) for name in ("file", "unit", "project", "user") if getattr(server, name)}
    if server.manager == "kubernetes":
        value["unit"] = "deployment/NAME"
    return value


def _several(servers: Sequence[FoundServer], doubts: list[str]) -> dict[str, Any]:
    """Several that serve together, stopped and started by one pair of commands where one manager has them all."""
    managers = {server.manager for server in servers}
    names = [_name(server) for server in servers]
    doubts.append(f"{len(servers)} servers run here: {', '.join(map(_with_ports, servers))}")
    [manager, *others] = sorted(managers)
    if not others and manager in ("docker", "podman"):
        # Compose's containers have names too, which Compose itself starts again by.
        return {"manager": "command", "start": [manager, "start", *names], "stop": [manager, "stop", *names]}
    if not others and manager == "systemd" and not any(server.user for server in servers):
        systemctl = {verb: ["systemctl", verb, *names] for verb in ("start", "stop")}
        return {"manager": "command", **systemctl, "check": ["systemctl", "is-active", "--quiet", *names]}
    doubts.append("Give start and stop as one command each")
    return {
        "manager": "command",
        "start": ["/usr/local/sbin/start-production"],
        "stop": ["/usr/local/sbin/stop-production"],
    }


def _name(server: FoundServer) -> str:
    return str(server.unit or f"process {server.pid}")


def _with_ports(server: FoundServer) -> str:
    ports = " and ".join(map(str, server.ports))
    return f"{_name(server)} on port {ports}" if ports else _name(server)


def _facts(answer: SurveyAnswer) -> Variable:
    gpus = [
        {
            name: getattr(gpu, name)
            for name in ("index", "name", "vram_bytes", "power_limit_w", "compute_capability")
            if getattr(gpu, name) is not None
        }
        for gpu in answer.gpus
    ]
    comment = (
        "For planning without a node; a probe replaces it." if gpus else "No GPU was found by nvidia-smi or amd-smi."
    )
    return Variable(name="tokenpeak_facts", value={"gpus": gpus}, comment=comment)


def _shown(engine: FoundEngine) -> str:
    version = f" {engine.version}" if engine.version else ""
    return f"{engine.runtime} image {engine.image}" if engine.image else f"{' '.join(engine.command)}{version}"


def summary(answer: SurveyAnswer) -> str:
    """What was found, in a line."""
    boards = answer.gpus[0].name if answer.gpus else "no GPU"
    count = f"{len(answer.gpus)}× " if len(answer.gpus) > 1 else ""
    engine = next((server.engine for server in answer.servers if server.engine), None) or next(
        iter(answer.engines), None
    )
    words = [f"{count}{boards}", f"engine {_shown(engine)}" if engine else "no engine"]
    servers = [f"{server.manager} {server.unit or server.pid or ''}".strip() for server in answer.servers]
    serves = f" serves {answer.served_name}" if answer.served_name else ""
    words.append(f"production: {' and '.join(servers)}{serves}" if servers else "no production")
    return one_line(", ".join(words))


def _text(variable: Variable) -> str:
    """A variable as YAML, its comment in front; lists of words stand in one line."""
    said = f"{UNSETTLED} {variable.comment}" if variable.is_guess else variable.comment
    comment = "".join(f"# {line}\n" for line in _wrapped(said))
    value = variable.value
    inner = list(value.values()) if isinstance(value, Mapping) and variable.name == "tokenpeak_production" else [value]
    in_lines = any(isinstance(each, Mapping | list) for each in inner)
    return comment + variables_yaml({variable.name: value}, in_lines=in_lines)


def _key(name: str) -> str:
    return variables_yaml({name: None}, in_lines=False).removesuffix(": null\n")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(one_line(" ".join(text.split())), 117)


def _indented(text: str, spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in text.splitlines())
