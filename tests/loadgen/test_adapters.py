"""LoRA adapters of a workload: shares, what bodies ask, and a server that lacks one."""

import json
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pydantic import ValidationError

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.adapters import adapters_of, require_adapters
from tokenpeak.loadgen.assignment import LoadAssignment, RequestSource, payload
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.prompts import Prompts, make
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.spec.workload import ConversationWorkload, SyntheticWorkload

SHARES = {"base": 1.0, "support": 2.0, "sql": 4.0}


def workload(**more: object) -> SyntheticWorkload:
    """A workload of adapters."""
    return SyntheticWorkload.model_validate(
        {"name": "mixed", "input_tokens": 8, "output_tokens": 4, "adapters": SHARES, **more}
    )


@pytest.mark.parametrize("number", [1, 7, 100, 701])
def test_counts_are_the_nearest_whole_numbers(number: int) -> None:
    """No adapter's count is a whole request or more from its share; of seven, as the shares say."""
    counts = Counter(adapters_of(workload(), Prompts(), number, seed=3))

    assert number == counts.total()
    assert all(abs(counts[name] - number * share / 7) < 1 for name, share in SHARES.items())


def test_warm_up_takes_nothing_from_the_measured_ones() -> None:
    """Both parts have the shares."""
    drawn = adapters_of(workload(), Prompts(), 21, warmup=7, seed=3)

    assert {"base": 1, "support": 2, "sql": 4} == Counter(drawn[:7])
    assert {"base": 2, "support": 4, "sql": 8} == Counter(drawn[7:])


def test_the_seed_decides() -> None:
    """One seed draws the same again, another something else; a workload without adapters nothing."""
    first = adapters_of(workload(), Prompts(), 100, seed=1)

    assert first == adapters_of(workload(), Prompts(), 100, seed=1)
    assert first != adapters_of(workload(), Prompts(), 100, seed=2)
    assert () == adapters_of(workload(adapters={}), Prompts(), 100, seed=1)


def asked(assignment: LoadAssignment, number: int) -> list[str]:
    """The models that the first bodies ask."""
    source = RequestSource(assignment)
    bodies = [payload(assignment, source.take(0.0)).partition(b"\r\n\r\n")[2] for _ in range(number)]
    return [json.loads(body)["model"] for body in bodies]


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("workers", [1, 3])
def test_bodies_ask_the_adapter(endpoint: str, workers: int) -> None:
    """Each worker's requests ask those that are drawn for them, and the base by the model's own name."""
    mixed = workload(endpoint=endpoint, salt=True)
    prompts = make(mixed, "served/small", UNKNOWN, number=30, seed=5, salt="salt")
    drawn = adapters_of(mixed, prompts, 30, seed=5)
    target = Server("http://127.0.0.1:1").target(endpoint)
    whole = LoadAssignment(target=target, templates=prompts.templates, adapters=drawn, model="served/small")
    wanted = ["served/small" if name == "base" else name for name in drawn]

    for part in range(workers):
        assert wanted[part::workers] == asked(whole.share(part, workers), len(wanted[part::workers]))


def test_a_conversation_stays_with_its_adapter() -> None:
    """Its later turns ask what its first did."""
    chats = ConversationWorkload.model_validate(
        {
            "name": "chats",
            "starters": 1,
            "starter_tokens": 4,
            "turns": 2,
            "turn_input_tokens": 4,
            "output_tokens": 2,
            "adapters": SHARES,
        }
    )
    prompts = make(chats, "small", UNKNOWN, number=14, seed=5, salt="salt")
    assignment = LoadAssignment(
        target=Server("http://127.0.0.1:1").target("chat"),
        conversations=prompts.conversations,
        conversation_options=prompts.conversation_options,
        adapters=adapters_of(chats, prompts, 14, seed=5),
        model="small",
    )
    source = RequestSource(assignment)
    for number in range(7):
        first = source.take(0.0)
        then = source.following(first)
        assert then is not None
        name = assignment.adapters[number]
        body = json.loads(payload(assignment, then).partition(b"\r\n\r\n")[2])
        assert (name, "small" if name == "base" else name) == (then.adapter, body["model"])


def test_a_path_without_a_share_is_refused() -> None:
    """Nothing would ask that adapter."""
    with pytest.raises(ValidationError, match="adapter_paths has tickets, of which adapters gives no share"):
        workload(adapter_paths={"tickets": "/adapters/tickets"})


class _Models(BaseHTTPRequestHandler):
    """Lists a model and an adapter, and loads none: a server of which no variable allows it."""

    def do_GET(self) -> None:
        """The list of models."""
        self._answer(200, {"data": [{"id": "small"}, {"id": "support"}]})

    def do_POST(self) -> None:
        """No such path."""
        self._answer(404, {"detail": "Not Found"})

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the adapter `support` alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Models) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield Server(f"http://127.0.0.1:{listening.server_port}")
        listening.shutdown()


def test_an_adapter_that_is_not_served_is_named(server: Server) -> None:
    """With those that are; base needs none."""
    require_adapters(server, [workload(adapters={"base": 1, "support": 1})])
    with pytest.raises(LoadError, match="no adapter 'sql'; it serves 'small', 'support'"):
        require_adapters(server, [workload()])


def test_a_server_that_may_load_none_says_what_to_write(server: Server) -> None:
    """The variable, and where it stands."""
    with pytest.raises(LoadError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' into tokenpeak_engine_env"):
        require_adapters(server, [workload(adapter_paths={"sql": "/adapters/sql"})])
