"""Production that is no model of completions: each kind of server, asked as its declaration says, before and after."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

KINDS = ("completion", "chat", "embedding", "rerank", "health")


def declared(node: Node, *options: str, **more: Any) -> dict[str, Any]:
    """Declare and start a production with these options."""
    found = {**node.production(*options), **more}
    node.declare(production=found)
    produced = node.run("produce")
    assert produced["ready"], produced
    return found


def through_a_trial(node: Node) -> dict[str, Any]:
    """The restoration after a trial."""
    launched = node.run("launch", node.launch_request())
    assert launched["production"]["running"], launched
    restoration = node.run("finish", node.finish_request())["restoration"]
    assert isinstance(restoration, dict)
    return restoration


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_restored(node: Node, kind: str) -> None:
    """A server that answers nothing but its kind is taken for well, stopped, brought back, and seen to answer."""
    declared(node, "--kind", kind, answers_with=kind)
    restoration = through_a_trial(node)

    assert restoration["restored"], restoration
    assert restoration["was_running"]
    assert (None if kind == "health" else "prod") == restoration["model"]


def test_command_decides(node: Node, tmp_path: Path) -> None:
    """A command's status says whether production serves; its words say why it does not."""
    word = tmp_path / "well"
    word.touch()
    command = ["/bin/sh", "-c", f"test -e {word} || {{ echo the queue is down; exit 3; }}"]
    found = declared(node, "--kind", "health", answers_with="command", answer_command=command)
    assert through_a_trial(node)["restored"]

    word.unlink()
    assert "ended with status 3: the queue is down" in node.run("launch", node.launch_request())["error"]["text"]
    del found["url"]
    word.touch()
    node.declare(production=found)
    assert through_a_trial(node)["restored"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    made = tmp_path / "server.pem"
    names = ["-subj", "/CN=production", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "-", "-out", "-"]
    done = subprocess.run(["openssl", "req", "-x509", *key, *names], capture_output=True, text=True, check=True)
    made.write_text(done.stdout)
    return made


def test_own_certificate_is_trusted_by_its_file_alone(node: Node, certificate: Path, tmp_path: Path) -> None:
    """A self-signed https production is restored with `ca_file`; without it, it is not touched."""
    found = node.production("--tls", str(certificate))
    found["url"] = found["url"].replace("http:", "https:")
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(certificate.read_text())
    node.declare(production={**found, "ca_file": str(ca_file)})
    assert node.run("produce")["ready"]
    assert through_a_trial(node)["restored"]

    node.declare(production=found)
    assert "names no model" in node.run("launch", node.launch_request())["error"]["text"]


def test_wrong_declarations_are_named(node: Node) -> None:
    """Install refuses a kind that there is not, a command that is not given, and certificates that are not there."""
    found = node.production()

    for more, said in (
        (
            {"answers_with": "embeddings"},
            "'embeddings': give one of completion, chat, embedding, rerank, health, command",
        ),
        ({"answers_with": "command"}, "answer_command is missing"),
        ({"ca_file": "/no/such.pem"}, "ca_file /no/such.pem cannot be read"),
    ):
        node.declare(production={**found, **more})
        answer = node.run("install")
        assert said in answer["error"]["text"], answer
        assert any(said in problem for problem in node.run("probe")["problems"])
