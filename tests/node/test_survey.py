"""What a survey reads from command lines, without a machine."""

import pytest

from tokenpeak.node.probe.survey import is_engine, model_of


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("/opt/vllm/bin/python /opt/vllm/bin/vllm serve org/model --port 8000", "org/model"),
        ("python3 -u /opt/vllm/bin/vllm serve /models/x", "/models/x"),
        ("/opt/vllm/bin/vllm serve --model org/model", "org/model"),
        ("python -m vllm.entrypoints.openai.api_server --model=org/model", "org/model"),
        ("python3 -u -m vllm.entrypoints.openai.api_server --port 8000", None),
    ],
)
def test_server_of_a_model(line: str, model: str | None) -> None:
    """A command line of vLLM's server is known, with the model that it loads."""
    assert is_engine(line.split())
    assert model == model_of(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sh -c /opt/vllm/bin/vllm serve org/model",
        "sudo -u vllm /opt/vllm/bin/vllm serve org/model",
        "docker run vllm/vllm-openai serve org/model",
        "/opt/vllm/bin/vllm bench serve",
        "vim vllm serve",
        "python train.py --framework vllm serve",
    ],
)
def test_others_are_no_servers(line: str) -> None:
    """Who starts a server, and what merely names one, is none."""
    assert not is_engine(line.split())
