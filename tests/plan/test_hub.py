import itertools
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tokenpeak.predict.model import facts_from_hub, model_facts

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
QUANT = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
PAGES = {
    "/some/model/resolve/main/config.json": CONFIG,
    "/some/exotic/resolve/main/config.json": {**CONFIG, "intermediate_size": [128, 256]},
    "/some/fp8/resolve/main/config.json": CONFIG,
    "/some/fp8/resolve/main/hf_quant_config.json": QUANT,
}

MEGABYTE = b"x" * (1 << 20)
ENDLESS: dict[str, Iterable[bytes]] = {
    "/evil/endless/resolve/main/config.json": itertools.chain([b'{"a": "'], itertools.repeat(MEGABYTE, 200)),
    "/evil/deep/resolve/main/config.json": [b"[" * 200_000],
    "/evil/lists/resolve/main/config.json": [b"[" + b"[]," * 1_000_000 + b"0]"],
    "/evil/surrogate/resolve/main/config.json": [b'{"architectures": ["\\ud800"]}'],
    "/evil/list/resolve/main/config.json": [b"[1]"],
}
"""What the repository of somebody's model may hold instead; of the first, the client takes a part."""


class _Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path)
        self.send_response(200 if page or self.path in ENDLESS else 404)
        self.end_headers()
        with suppress(OSError):
            for piece in ENDLESS.get(self.path, [json.dumps(page).encode()]):
                self.wfile.write(piece)

    def log_message(self, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A hub on this machine, and an empty place to keep what it says."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_asks_the_hub_once(hub: str) -> None:
    """What the hub said is kept: afterwards the model is known without it."""
    assert model_facts("some/model") is None

    asked = facts_from_hub("some/model", env={"HF_ENDPOINT": hub})

    assert asked is not None
    assert asked == model_facts("some/model")


@pytest.mark.parametrize(
    ("name", "env"),
    [("some/other", {}), ("some/model", {"HF_HUB_OFFLINE": "1"}), ("/a/path", {}), ("plain-name", {})],
)
def test_knows_nothing_when_the_hub_does_not(hub: str, name: str, env: dict[str, str]) -> None:
    """A model that the hub lacks, an offline switch and a path are no error; there are no facts."""
    assert facts_from_hub(name, env={"HF_ENDPOINT": hub, **env}) is None


@pytest.mark.parametrize("path", ENDLESS)
def test_file_of_somebody_who_means_harm(hub: str, path: str, tmp_path: Path) -> None:
    """One without end, too deep or of no shape is no error and is not kept; little of it is read."""
    name = path.removeprefix("/").removesuffix("/resolve/main/config.json")

    assert facts_from_hub(name, env={"HF_ENDPOINT": hub}) is None
    assert [] == [*tmp_path.rglob("*.json")]
    if "endless" in name:
        assert next(iter(ENDLESS[path]), None) is not None


def test_file_that_drips(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then holds nobody beyond a limit of the whole."""
    monkeypatch.setattr("tokenpeak.predict.model.HUB_ANSWER_LIMIT_S", 0.1)
    monkeypatch.setitem(ENDLESS, "/evil/drip/resolve/main/config.json", (time.sleep(0.02) or b" " for _ in range(100)))
    began = time.monotonic()

    assert facts_from_hub("evil/drip", env={"HF_ENDPOINT": hub}) is None
    assert time.monotonic() - began < 1
