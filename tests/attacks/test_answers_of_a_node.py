"""A node answers what no node script sends, to end a run of the others, or to lead a load or a file away.

The node alone is left out, with one sentence of one line. Where the load goes and which file is sent is said by the
controller's own inventory, and a word of a node in an inventory that is written runs nothing.
"""

import configparser
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sweep.resolved import answers, inventory_request

from tokenpeak import paths
from tokenpeak.errors import InventoryError, NodeError
from tokenpeak.node.machine.words import no_command
from tokenpeak.node.protocol import frame
from tokenpeak.node.protocol.answers import ProbeAnswer, RestoreAnswer, SurveyAnswer, as_json, parse
from tokenpeak.node.protocol.frame import framed
from tokenpeak.node.protocol.parts import FoundEngine, FoundServer, Gpu, RestoreOutcome
from tokenpeak.sweep import probe as probing
from tokenpeak.sweep.ansible.plugins import NodeFiles
from tokenpeak.sweep.ansible.result import Event, NodeResult, as_object
from tokenpeak.sweep.ansible.runner import PlaybookResult, _Collector, _environment
from tokenpeak.sweep.installation import own_script
from tokenpeak.sweep.inventory.first_inventory import first_inventory, variables_yaml
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.inventory.survey import Surveyed
from tokenpeak.sweep.inventory.variables import ControllerVariables
from tokenpeak.sweep.probe import ReadyNode, _ready, probe

HOST, PORT = "192.0.2.7", 8099
MODEL = {"name": "acme/model", "served_name": "acme/model"}
DECLARATION: dict[str, Any] = {
    "node": "gpu-1",
    "host": HOST,
    "port": PORT,
    "engine": {"command": ["/opt/vllm/bin/vllm", "serve"], "env": {}},
    "engines": [],
    "model": {**MODEL, "path": None},
    "limits": {"lease_max_s": None, "trial_deadline_max_s": None},
    "state_dir": "/var/lib/tokenpeak",
    "python": "/usr/bin/python3",
}


def node(name: str = "gpu-1", **variables: Any) -> Node:
    """A node of the inventory, with the declaration that this controller put there."""
    own = {"tokenpeak_host": HOST, "tokenpeak_port": PORT, "tokenpeak_model": MODEL, **variables}
    return Node(name=name, variables=own, declaration=None if "tokenpeak_guard_command" in own else DECLARATION)


def inventory(*nodes: Node) -> Inventory:
    """An inventory of these nodes."""
    return Inventory(name="mine", hosts_path=Path("hosts.yml"), nodes=nodes)


def sent(**changes: Any) -> dict[str, Any]:
    """A good answer as it is sent, with these fields in place of its own."""
    answer = ProbeAnswer(
        probed_at="2026-11-26T12:00:00Z",
        simulated=False,
        cpu="EPYC",
        cpu_cores=8,
        os="Debian",
        kernel="6.1",
        engine_port_free=True,
        disk_free_bytes=1 << 40,
        model_present=None,
        declaration=DECLARATION,
    )
    found: dict[str, Any] = json.loads(json.dumps(as_json(dataclasses.replace(answer)), default=vars))
    return {**found, "script": own_script(), **changes}


GUARDED = {"tokenpeak_guard_command": "/usr/local/sbin/tokenpeak-node"}
DEEP = "[" * 100_000 + "]" * 100_000


def ready(printed: str, of: Node | None = None) -> ReadyNode:
    """What a controller makes of what a node's probe printed."""
    one = of or node()
    found = as_object(printed)
    answers = {} if found is None else {"probe": parse(ProbeAnswer, found)}
    return _ready(one.name, NodeResult(answers=answers), inventory(one))  # type: ignore[arg-type]


@pytest.mark.parametrize("variables", [{}, GUARDED])
@pytest.mark.parametrize("change", [{"host": "198.51.100.66"}, {"port": 80}, {"host": "192.0.2.7:1@198.51.100.66"}])
def test_no_answer_chooses_where_the_load_goes(change: dict[str, Any], variables: dict[str, Any]) -> None:
    """A node that declares another place than the inventory does is left out, and says which."""
    with pytest.raises(NodeError, match=r"its declaration has the engine at .* this inventory at 192.0.2.7 port 8099"):
        ready(json.dumps(sent(declaration={**DECLARATION, **change})), node(**variables))


@pytest.mark.parametrize("host", [None, "", "h/../x", "-oProxyCommand=x", "h\n", "user@h"])
def test_an_address_that_is_none_is_refused(host: str | None) -> None:
    """A host that the inventory does not have, or that a URL would read otherwise, is a sentence."""
    with pytest.raises((InventoryError, NodeError), match="tokenpeak_host of node gpu-1"):
        ready(json.dumps(sent()), node(tokenpeak_host=host))


ODD: dict[str, str] = {
    "nothing": "",
    "a list": "[]",
    "nested deep": DEEP,
    "nested deep within": json.dumps(sent()).replace('"EPYC"', DEEP),
    "half a surrogate pair": json.dumps(sent(os="\ud800")),
    "a key twice": json.dumps(sent())[:-1] + ', "cpu": 1}',
    "a number without end": json.dumps(sent()).replace(": 8,", f": {'9' * 5000},"),
    **{
        f"{name} is {value!r:.40}": json.dumps(sent(**{name: value}))
        for name, value in (
            ("cpu_cores", float("nan")),
            ("gpus", [{"index": "0"}]),
            ("engines", [None]),
            ("production", "none"),
            ("power_meters", [["node", "x"]]),
            ("declaration", None),
            ("os", "Debian\ngpu-2: serves acme/model"),
            ("cpu_cores", -5),
        )
    },
    **{
        f"declaration's {name} is {value!r:.40}": json.dumps(sent(declaration={**DECLARATION, name: value}))
        for name, value in (
            ("engines", [1]),
            ("engines", [{"name": "a"}]),
            ("engines", [{"name": [], "build": 1}]),
            ("engine", {"command": 5}),
            ("limits", {"lease_max_s": {}}),
            ("state_dir", "a\rb"),
            ("port", "http"),
        )
    },
}


def test_the_others_are_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of nodes of which each but one answers something odd, that one is used, and each other has its reason."""
    nodes = {f"gpu-{number}": text for number, text in enumerate(ODD.values())}
    given = {"good": json.dumps(sent()), **nodes}

    def answered(name: str) -> NodeResult:
        found = as_object(given[name])
        return NodeResult(has_run=True, answers={} if found is None else {"probe": parse(ProbeAnswer, found)})

    def answers(one: Inventory, **_: object) -> PlaybookResult:
        return PlaybookResult(
            nodes={node.name: answered(node.name) for node in one.nodes}, cancelled=False, duration_s=1
        )

    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    monkeypatch.setattr(probing, "install_and_probe", answers)
    found = probe(inventory(*(node(name, tokenpeak_guard_command="/x") for name in given)))

    assert "EPYC" == found.answered["good"].facts.cpu
    assert len(found.failed) >= len(ODD) - 2
    assert all(1 == len(line.splitlines()) for line in found.complaints())


def test_answer_to_a_look_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of nothing take many times their text's memory: what is larger than such an answer is not read."""
    files = NodeFiles(script=b"x", declaration={"state_dir": "/x", "python": "/usr/bin/python3"})
    read: list[int] = []
    real = json.loads
    monkeypatch.setattr(frame.json, "loads", lambda text: (read.append(len(text)), real(text))[1])

    assert not files.are_there('\n{"files":[' + "[]," * 300_000 + "[]]}\n")
    assert files.are_there(framed({"files": files._expected()}))
    assert max(read) < 2000


FORGED = "x\n::add-mask::y\ngpu-2: serves"
ODD_RESULTS: list[Any] = [
    *(True, 1e999, 10**400, "", FORGED, "\ud800", [[]], [None], [FORGED]),
    *({}, {"period": FORGED}, {"period": []}, {"period": 10**400}, {"x": FORGED}),
]
READ = ("timedout", "cmd", "rc", "msg", "stdout", "stderr", "module_stdout", "module_stderr")
"""The keys that are read of a result."""
TASK = {"task": "Bring production back", "task_action": "node_command"}


def taken(collector: _Collector, kind: str, result: Any, node: str = "gpu-1") -> None:
    """One event of a playbook's run."""
    known = {"tokenpeak_step": "restore", **result} if isinstance(result, dict) else result
    collector({"event": f"runner_on_{kind}", "event_data": {**TASK, "host": node, "res": known}})


@pytest.mark.parametrize("key", READ)
def test_key_of_an_odd_type(key: str) -> None:
    """Each key that is read, of a result that failed or that says that the node was not reached."""
    usual = {"failed": True, "rc": 1, "msg": "x"}
    missing = {"cmd": ["python3"], "rc": 2, "msg": "Error executing command."}
    for result in ({**first, key: odd} for odd in ODD_RESULTS for first in (usual, missing)):
        collector = _Collector(None)
        taken(collector, "failed", result)
        taken(collector, "unreachable", result)
        found = collector.result("gpu-1")

        for words in (found.failure, found.unreachable):
            assert words is not None, result
            assert 1 == len(words.splitlines()), result
            assert no_command(words) == words, result
            assert "could not be taken in" not in words, result


def test_whatever_is_raised_fails_that_node_alone() -> None:
    """It is said with its kind, its words and its place; another node's answer, which comes after it, is taken."""
    seen: list[str] = []

    def on_event(event: Event) -> None:
        if event.node == "gpu-1":
            raise LookupError(FORGED)
        seen.append(event.node)

    restored = RestoreOutcome(restored=True, was_running=True, message="It serves.")
    printed = framed({**as_json(RestoreAnswer(restoration=restored)), "script": "abc"})
    collector = _Collector(on_event)
    taken(collector, "ok", {"stdout": printed})
    taken(collector, "ok", {"stdout": printed}, node="gpu-2")
    failed, other = collector.result("gpu-1"), collector.result("gpu-2")

    assert (["gpu-2"], True, ["restore"]) == (seen, other.ok, [*other.answers])
    assert failed.failure is not None
    assert "LookupError: x | " in failed.failure
    assert "test_answers_of_a_node.py, line " in failed.failure
    assert 1 == len(failed.failure.splitlines())


READ_HERE = ("src", "secret_file", "script", "request", "job")
"""Arguments of our modules that name a file of the controller's."""
BY_HOST = "tokenpeak_secret_files[inventory_hostname] if tokenpeak_secret_files is defined else omit"
"""The one choice by a host's name, of the files that the controller gave."""
HANDED_OUT = r"next\.trial\.(launch|job|finish|restore)"
"""What a task has from the controller, over its own socket."""
NAME = r"\w[\w.-]*"
"""Of a file of the role itself."""
TASKS = sorted(paths.PLAYBOOKS.rglob("*.yml"))


def test_no_fact_becomes_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when the playbooks are played by hand, nor here, whatever the caller's environment says."""
    settings = configparser.ConfigParser()
    settings.read(paths.PLAYBOOKS / "ansible.cfg")
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "True")

    assert "False" == settings["defaults"]["inject_facts_as_vars"]
    assert "False" == _environment({"ANSIBLE_INJECT_FACT_VARS": "True"})["ANSIBLE_INJECT_FACT_VARS"]


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.relative_to(paths.PLAYBOOKS).as_posix())
def test_files_that_are_read_here_are_the_controller_s_choice(path: Path) -> None:
    """What a task looks up, copies or sends is named by a constant, or by a variable that the controller gives."""
    unnamed = [words for words in _read_here(yaml.safe_load(path.read_text())) if not _is_chosen_here(words)]

    assert [] == unnamed, f"{path} reads a file of the controller's that a host's variables name"


def _read_here(value: Any, items: Any = None) -> Iterator[str]:
    """What names a file of the controller's in tasks; an `item` is put in where a loop names its items itself."""
    if isinstance(value, list):
        for each in value:
            yield from _read_here(each, items)
    elif isinstance(value, dict):
        items = value.get("loop", items)
        for key, each in value.items():
            if key in READ_HERE and isinstance(each, str):
                is_listed = each == "{{ item }}" and isinstance(items, list)
                yield from map(str, items) if is_listed else (each,)
            else:
                yield from _read_here(each, items)
    elif isinstance(value, str):
        for named in re.findall(r"(?:lookup|query|q)\(\s*'[\w.]+',\s*([^,)]+)", value):
            yield f"{{{{ {named} }}}}"


def _is_chosen_here(words: str) -> bool:
    template = re.fullmatch(r"{{ (.*) }}", words)
    if template is None:
        return re.fullmatch(NAME, words) is not None
    if template[1].startswith("{'"):
        return True  # it is the request itself
    is_named = template[1] in (*ControllerVariables.model_fields, BY_HOST)
    return is_named or re.fullmatch(f"'{NAME}'|{HANDED_OUT}", template[1]) is not None


MANAGERS = ("process", "systemd", "docker", "compose")


def full_of(payload: str, manager: str) -> SurveyAnswer:
    """An answer in which every text is the payload, save the one that decides what is written."""

    def filled(kind: Any, **fixed: Any) -> Any:
        texts = {"str", "str | None"}
        own: dict[str, Any] = {one.name: payload for one in dataclasses.fields(kind) if one.type in texts}
        own |= {one.name: (payload,) for one in dataclasses.fields(kind) if one.type == "tuple[str, ...]"}
        own |= {one.name: {payload: payload} for one in dataclasses.fields(kind) if one.type == "Mapping[str, str]"}
        return kind(**{**own, **fixed})

    engine = filled(FoundEngine, image=None if manager in ("process", "systemd") else payload)
    server = filled(
        FoundServer, manager=manager, engine=engine, model=payload if manager == "process" else f"/{payload}"
    )
    board = filled(Gpu, index=0)
    return filled(
        SurveyAnswer, servers=(server,), engines=(engine,), gpus=(board,), is_root=True, error=None, unusable=()
    )


def written(folder: Path, answer: SurveyAnswer, name: str = "one") -> Path:
    """The inventory that is written of a host with that answer; its hosts.yml."""
    hosts, shared = first_inventory(
        [Surveyed(name=name, address="192.0.2.1", user="me", answer=answer)], "Written by …"
    )
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(hosts)
    (folder / "group_vars" / "all.yml").write_text(shared)
    return folder / "hosts.yml"


def test_nothing_of_a_node_is_rendered(tmp_path: Path) -> None:
    """No lookup runs, by braces, by a statement, or by delimiters of the word's own; the word is what it was."""
    canary = tmp_path / "canary"
    run = f"lookup('pipe', 'touch {canary}')"
    payloads = (
        "{{ " + run + " }}",
        "{% if " + run + " %}x{% endif %}",
        f"#jinja2:variable_start_string:'[['\n[[ {run} }}}}",
    )
    cases = {
        (manager, payload): written(tmp_path / f"{manager}-{number}", full_of(payload, manager))
        for manager in MANAGERS
        for number, payload in enumerate(payloads)
    }
    found = answers([inventory_request(path) for path in cases.values()])

    assert not canary.exists()
    for (manager, payload), answer in zip(cases, found, strict=True):
        assert {} == answer["failures"], (manager, answer["failures"])
        variables, declaration = answer["variables"]["one"], json.loads(answer["texts"]["one"])
        assert payload == variables["tokenpeak_model"]["served_name"]
        if manager == "process":
            kept = declaration["production"]["process"]
            assert kept["argv"] == ["runuser", "-u", payload, "--", payload]
            assert kept["env"] == {payload: payload}
        assert "192.0.2.1" == declaration["host"]


@pytest.mark.parametrize(
    "word",
    [
        "\u202e{{ x }}",
        "a\nb: c",
        "\x85b: c",
        "# x",
        "!vault x",
        "---",
    ],
)
def test_a_word_is_one_value_of_the_file(word: str) -> None:
    """Whatever it holds, it ends neither its value nor its line, and what hides text stands there by its code."""
    text = variables_yaml({"a": word, "b": [word, 1], word: 2})

    class Loader(yaml.SafeLoader):
        """Takes the tag as Ansible does."""

    Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    assert {"a": word, "b": [word, 1], word: 2} == yaml.load(text, Loader)
    assert text.replace("\n", "").isprintable()
