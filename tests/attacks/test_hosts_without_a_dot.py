"""Somebody reads the names of hosts, interfaces and folders of a published sweep where no pattern knows them.

A host without a dot and a folder without a slash look like any word. So of flags, variables and JSON keys that say
where something is, nothing leaves but what everybody has; what was equal becomes equal, wherever it stands.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from leak_search import leaks
from tokenpeak.report.site.cleaned_copy import cleaned_copy
from tokenpeak.report.site.cleaner import Cleaner
from tokenpeak.report.site.known_words import KnownWords

WORD = "zanzibarium"
KV = {
    "kv_connector": "P2pNcclConnector",
    "kv_ip": WORD,
    "kv_port": 21001,
    "extra": {"proxyIp": [f"{WORD}7", "127.0.0.1"]},
}
FLAGS: dict[str, Any] = {
    "master_addr": WORD,
    "data_parallel_address": f"{WORD}-1",
    "download_dir": f"{WORD}/weights",
    "ssl_keyfile": f"{WORD}.pem",
    "chat_template": f"{WORD}.jinja",
    "lora_modules": f"a={WORD}/lora",
    "otlp_traces_endpoint": f"grpc://{WORD}:4317",
    "kv_transfer_config": json.dumps(KV),
}
ENV = {
    "VLLM_HOST_IP": f"{WORD}3",
    "RAY_ADDRESS": f"{WORD}4:6379",
    "NCCL_COMM_ID": f"{WORD}5:9999",
    "NCCL_SOCKET_IFNAME": f"{WORD}0,eth{WORD}",
    "VLLM_RAY_DP_PLACEMENT_NODE_IPS": f"{WORD},{WORD}3",
    "VLLM_CACHE_ROOT": f"{WORD}/cache",
}
STAYS = {
    "master_addr": "127.0.0.1",
    "host": "0.0.0.0",
    "data_parallel_address": "localhost:13345",
    "model": "meta-llama/Llama-3.1-8B",
    "tokenizer": "meta-llama/Llama-3.1-8B",
    "generation_config": "auto",
    "ssl_keyfile": "",
    "kv_cache_dtype": "fp8",
    "kv_transfer_config": '{"kv_ip":"::1","kv_role":"kv_both"}',
    "attention_backend": "FLASHINFER",
}


@pytest.fixture
def sown(tmp_path: Path) -> Path:
    """An archive whose settings have the word, in an axis and in what was launched too."""
    path = make_archive(tmp_path / "20261120-220000-s-lab", axes={"master_addr": [WORD, f"{WORD}2"]}, seconds=3).path
    raw = json.loads((path / "sweep.json").read_text())
    for plan in raw["plans"]:
        for each in plan["feasible"]:
            each["config"]["flags"] |= FLAGS
            each["config"]["env"] |= ENV
    raw["spec"]["fixed"] |= {"flags": FLAGS, "env": ENV}
    raw["nodes"][0]["engine_env"] = ENV
    (path / "sweep.json").write_text(json.dumps(raw))
    for file in path.glob("trials/*.json"):
        trial: dict[str, Any] = json.loads(file.read_text())
        trial["argv"] += [word for name, value in FLAGS.items() for word in (f"--{name.replace('_', '-')}", value)]
        trial["argv"] += [f"--{name}={value}" for name, value in FLAGS.items()]
        trial["argv"] += ["--kv-transfer-config.kv_ip", WORD, "--lora-modules", f"a={WORD}", f"b={WORD}"]
        trial["argv"] = ["env", *(f"{name}={value}" for name, value in ENV.items()), *trial["argv"]]
        trial["failure"] = {"phase": "load", "cause": "unknown", "message": f"{WORD}4 fell", "evidence": [WORD]}
        file.write_text(json.dumps(trial))
    return path


@pytest.mark.parametrize("texts", [False, True])
def test_no_name_of_a_place_leaves(sown: Path, tmp_path: Path, *, texts: bool) -> None:
    """From flags, variables, JSON, the command line, names of choices and, where they are asked for, texts."""
    assert leaks(sown, [WORD])

    cleaned_copy(sown, tmp_path / "copy", node_names=False, texts=texts)

    assert [] == leaks(tmp_path / "copy", [WORD])


def test_they_stay_joined(sown: Path, tmp_path: Path) -> None:
    """A choice's name is its flag's value, and two hosts are two; what is clean stays as it is."""
    cleaned_copy(sown, tmp_path / "copy", node_names=False)
    record = json.loads((tmp_path / "copy" / "sweep.json").read_text())
    names = {one["config"]["choices"]["master_addr"] for plan in record["plans"] for one in plan["feasible"]}
    axis = {one["name"] for one in record["spec"]["axes"]["master_addr"]}
    again = cleaned_copy(tmp_path / "copy", tmp_path / "again", node_names=False)

    assert 2 == len(names)
    assert axis == names
    assert [] == again.lines()


def test_with_node_names_they_stay(sown: Path, tmp_path: Path) -> None:
    """As everything but secrets does."""
    cleaned_copy(sown, tmp_path / "copy", node_names=True)

    record = json.loads((tmp_path / "copy" / "sweep.json").read_text())
    assert ENV == record["nodes"][0]["engine_env"]
    assert FLAGS == record["spec"]["fixed"]["flags"]


@pytest.mark.parametrize("name", STAYS)
def test_what_everybody_has_stays(name: str) -> None:
    """Loopback, every address, numbers, and names of models on the hub; as a flag and in a command line."""
    cleaner = Cleaner(KnownWords(labels={}, models={}, kinds={}), {})

    assert STAYS[name] == cleaner._setting(name, STAYS[name])
    assert [f"--{name}", STAYS[name]] == [*cleaner._argv([f"--{name}", STAYS[name]])]


def test_a_path_around_a_known_word() -> None:
    """What follows a word that was replaced within a path is a part of the path."""
    cleaner = Cleaner(KnownWords(labels={}, models={}, kinds={"gpu-inv": "host"}), {})

    assert "at <path-1> now" == cleaner.text(f"at /srv/gpu-inv/{WORD} now")
