"""A node's user answers a probe with what no node script sends, to end a sweep of the others or to lead its load away.

The node alone is left out, with one sentence of one line. Where the load and its key go is said by the controller's own
inventory, whatever a node declares.
"""

import io
import json
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.attacks.answers import DECLARATION, HOST, PORT, inventory, node, sent

from tokenpeak.errors import InventoryError, NodeError
from tokenpeak.node.protocol import frame
from tokenpeak.node.protocol.answers import ProbeAnswer, parse
from tokenpeak.node.protocol.frame import framed
from tokenpeak.sweep import probe as probing
from tokenpeak.sweep.ansible.lease import _KEPT_LINES, LeaseChannel
from tokenpeak.sweep.ansible.node_action import NodeFiles
from tokenpeak.sweep.ansible.result import WORDS_CHARACTERS, NodeResult, as_object
from tokenpeak.sweep.ansible.runner import PlaybookResult
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.probe import ReadyNode, _ready, probe

GUARDED = {"tokenpeak_guard_command": "/usr/local/sbin/tokenpeak-node"}
DEEP = "[" * 100_000 + "]" * 100_000


def ready(printed: str, of: Node | None = None) -> ReadyNode:
    """What a controller makes of what a node's probe printed."""
    one = of or node()
    found = as_object(printed)
    answers = {} if found is None else {"probe": parse(ProbeAnswer, found)}
    return _ready(one.name, NodeResult(answers=answers), inventory(one))  # type: ignore[arg-type]


def test_good_answer_is_taken() -> None:
    """What the others are made of is whole."""
    assert "EPYC" == ready(json.dumps(sent())).facts.cpu


@pytest.mark.parametrize("variables", [{}, GUARDED])
@pytest.mark.parametrize("change", [{"host": "198.51.100.66"}, {"port": 80}, {"host": "192.0.2.7:1@198.51.100.66"}])
def test_no_answer_chooses_where_the_load_goes(change: dict[str, Any], variables: dict[str, Any]) -> None:
    """A node that declares another place than the inventory does is left out, and says which."""
    with pytest.raises(NodeError, match=r"its declaration has the engine at .* this inventory at 192.0.2.7 port 8099"):
        ready(json.dumps(sent(declaration={**DECLARATION, **change})), node(**variables))


def test_the_load_goes_where_the_inventory_says() -> None:
    """Of a node that root declared, its address is this inventory's; of another, all of the declaration is."""
    other = {**DECLARATION, "state_dir": "/tmp/mine", "python": "/tmp/python"}
    guarded, own = (ready(json.dumps(sent(declaration=other)), node(**one)).declaration for one in (GUARDED, {}))

    assert [(HOST, PORT)] * 2 == [(one["host"], one["port"]) for one in (guarded, own)]
    assert DECLARATION == own


@pytest.mark.parametrize("host", [None, "", "a b", "h/../x", "-oProxyCommand=x", "[::1]", "h\n", "user@h", "h:80/x"])
def test_an_address_that_is_none_is_refused(host: str | None) -> None:
    """A host that the inventory does not have, or that a URL would read otherwise, is a sentence."""
    with pytest.raises((InventoryError, NodeError), match="tokenpeak_host of node gpu-1"):
        ready(json.dumps(sent()), node(tokenpeak_host=host))


ODD: dict[str, str] = {
    "nothing": "",
    "a list": "[]",
    "nested deep": DEEP,
    "nested deep within": json.dumps(sent()).replace('"EPYC"', DEEP),
    "declaration nested deep": json.dumps(sent()).replace('"engines": []', f'"engines": {"[" * 50}{"]" * 50}'),
    "half a surrogate pair": json.dumps(sent(os="\ud800")),
    "a key twice": json.dumps(sent())[:-1] + ', "cpu": 1}',
    "a number without end": json.dumps(sent()).replace(": 8,", f": {'9' * 5000},"),
    **{
        f"{name} is {value!r:.40}": json.dumps(sent(**{name: value}))
        for name, value in (
            ("cpu_cores", float("nan")),
            ("memory_bytes", float("inf")),
            ("gpus", [{"index": "0"}]),
            ("gpus", {"index": 0}),
            ("engines", [None]),
            ("production", "none"),
            ("power_meters", [["node", "x"]]),
            ("declaration", None),
            ("declaration", []),
            ("declaration", {}),
            ("os", "Debian\ngpu-2: serves acme/model"),
            ("probed_at", "yesterday"),
            ("cpu_cores", -5),
        )
    },
    **{
        f"declaration's {name} is {value!r:.40}": json.dumps(sent(declaration={**DECLARATION, name: value}))
        for name, value in (
            ("engines", None),
            ("engines", "x"),
            ("engines", [1]),
            ("engines", [{"name": "a"}]),
            ("engines", [{"name": [], "build": 1}]),
            ("engine", "x"),
            ("engine", {"command": 5}),
            ("limits", 3),
            ("limits", {"lease_max_s": "soon"}),
            ("limits", {"lease_max_s": {}}),
            ("model", "acme"),
            ("state_dir", "a\rb"),
            ("port", "http"),
        )
    },
}


@pytest.mark.parametrize("variables", [{}, GUARDED], ids=["own", "guarded"])
@pytest.mark.parametrize("case", ODD)
def test_odd_answer_ends_its_own_probe_with_a_sentence(case: str, variables: dict[str, Any]) -> None:
    """No other error than the node's own comes of it, and what it says is one line; or it does no harm."""
    try:
        found = ready(ODD[case], node(**variables))
    except NodeError as error:
        assert 1 == len(str(error).splitlines())
        assert str(error).isprintable()
    else:
        assert found.facts.cpu == "EPYC"
        assert "\n" not in str(found.facts.os)


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
    assert len(found.failed) > 20
    assert all(1 == len(line.splitlines()) for line in found.complaints())


def printing(code: str) -> list[str]:
    """A command that runs this Python."""
    return [sys.executable, "-I", "-c", f"import sys\n{code}"]


@pytest.mark.parametrize("said", [b"x" * (8 << 20), b"x\n" * 20_000, b"[" * (1 << 18) + b"\n", b'{"heard": NaN}\n'])
def test_a_channel_keeps_the_last_of_what_is_no_answer(said: bytes) -> None:
    """Lines without end, lines for ever, and nested JSON end no thread and fill no memory."""
    other: deque[bytes] = deque(maxlen=_KEPT_LINES)
    process: Any = SimpleNamespace(stdout=io.BytesIO(said + b"\nlast words\n"))
    LeaseChannel(["true"], "sweep-1", 2.0, lambda _: None)._hear(process, other)

    assert b"last words\n" == other[-1]
    assert sum(map(len, other)) < 4 << 20


def test_why_a_lease_is_lost_is_one_line() -> None:
    """A node's last words, however long, are bounded and no line of their own."""
    lost: list[str] = []
    for code in ("sys.stderr.write('x' * (8 << 20))", r"sys.stdout.write('x\r::add-mask::y\u2028gpu-2: is lost')"):
        with LeaseChannel(printing(f"{code}; sys.exit(3)"), "sweep-1", 2.0, lost.append) as channel:
            assert channel.problem(3)

    flood, forged = lost
    assert len(flood) <= WORDS_CHARACTERS
    assert forged.isprintable()


def test_answer_to_a_look_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of nothing take many times their text's memory: what is larger than such an answer is not read."""
    files = NodeFiles(script=b"x", declaration={"state_dir": "/x", "python": "/usr/bin/python3"})
    read: list[int] = []
    real = json.loads
    monkeypatch.setattr(frame.json, "loads", lambda text: (read.append(len(text)), real(text))[1])

    assert not files.are_there('\n{"files":[' + "[]," * 300_000 + "[]]}\n")
    assert files.are_there(framed({"files": files._expected()}))
    assert max(read) < 2000
