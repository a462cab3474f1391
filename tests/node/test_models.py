"""Models on a node: found in the engine's own cache, or said to be missing while production serves."""

from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.engine.models import cache_folders, is_present, model_digest

COMMAND = {"command": ["/opt/bin/vllm", "serve"]}


def keep(cache: Path) -> Path:
    """Have `org/tiny` in this cache, as huggingface_hub keeps it."""
    (cache / "models--org--tiny" / "snapshots" / "0123").mkdir(parents=True)
    return cache


@pytest.mark.parametrize(
    ("env", "argv", "place"),
    [
        ({}, (), "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "{root}/xdg"}, (), "xdg/huggingface/hub"),
        ({"HF_HOME": "~/hf", "XDG_CACHE_HOME": "{root}/xdg"}, (), "home/hf/hub"),
        ({"HF_HUB_CACHE": "{root}/hub", "HF_HOME": "{root}/hf"}, (), "hub"),
        ({"HF_HUB_CACHE": "{root}/hub"}, ("--download-dir", "{root}/down"), "down"),
        ({"HF_HUB_CACHE": "{root}/hub"}, ("--download-dir={root}/down",), "down"),
    ],
    ids=["home", "xdg", "hf_home", "hub_cache", "download_dir", "download_dir="],
)
def test_cache_is_where_the_engine_looks(
    env: dict[str, str], argv: tuple[str, ...], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its variables and options, in the order of huggingface_hub; a model there is present, elsewhere missing."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    env = {name: value.format(root=tmp_path) for name, value in env.items()}
    argv = tuple(word.format(root=tmp_path) for word in argv)

    assert tmp_path / place == cache_folders(env, argv, None)[0]
    assert is_present("org/tiny", env, argv, None) is False
    keep(tmp_path / place)
    assert is_present("org/tiny", env, argv, None) is True
    assert is_present("org/other", env, argv, None) is False


def test_model_of_a_config_is_looked_for_before_production_stops(node: Node, tmp_path: Path) -> None:
    """A launch of a checkpoint that is not there fails for it alone; one that is there is started."""
    node.serve()
    node.declare(engine={**node.declaration["engine"], "env": {"HF_HOME": str(tmp_path)}})

    missing = node.run("launch", node.launch_request(model="org/tiny"))
    running = node.run("status")["production"]["running"]
    keep(tmp_path / "hub")
    found = node.run("launch", node.launch_request(model="org/tiny"))

    assert (False, "model_missing") == (missing["ready"], missing["failure_phase"])
    assert "would download it while production is down" in missing["message"]
    assert running
    assert found["ready"]


def test_the_checksum_is_the_model_s(tmp_path: Path) -> None:
    """A copy of the model has the same checksum; another beginning, size or file makes another; none is no checksum."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"table" + bytes(200_000))

    def digest(folder: Path) -> str | None:
        return model_digest(COMMAND, str(folder), {}, (), None)

    same = digest(first)
    assert same is not None and same == digest(second)
    (second / "model.safetensors").write_bytes(b"other" + bytes(200_000))
    assert same != digest(second)
    (second / "model.safetensors").write_bytes(b"table" + bytes(200_001))
    assert same != digest(second)
    assert digest(tmp_path / "none") is None


def test_the_checksum_is_of_the_revision_that_is_served(tmp_path: Path) -> None:
    """Of the hub's cache the snapshot that main names, or that the engine is given; in a container by its mounts."""
    hub = tmp_path / "hub" / "models--org--tiny"
    for commit in ("0123", "4567"):
        (hub / "snapshots" / commit).mkdir(parents=True)
        (hub / "snapshots" / commit / "config.json").write_text(commit)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("0123")
    env = {"HF_HOME": str(tmp_path)}
    image = {"image": "vllm:1", "mounts": [f"{tmp_path}:/root/.cache/huggingface"]}

    main = model_digest(COMMAND, "org/tiny", env, (), None)

    assert main is not None
    assert main == model_digest(image, "org/tiny", {}, (), None)
    given = model_digest(COMMAND, "org/tiny", env, ("--revision", "4567"), None)
    assert given is not None and given != main
