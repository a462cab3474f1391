"""Somebody reads what was published, packed or exported, and searches it for what its author did not think of.

No pattern knows a project's name or a customer's, a host without a dot or a folder without a slash. So logs and free
text stay at home unless they are asked for, and of flags and variables only values of known ones, numbers, yes and no
leave.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner

from archive_factory import make_archive
from leak_search import leaks
from tokenpeak.cli import tokenpeak as commands
from tokenpeak.errors import SpecError
from tokenpeak.report.site.cleaned_copy import cleaned_copy
from tokenpeak.report.site.cleaner import Cleaner
from tokenpeak.report.site.disclosure import RULES, FieldRule
from tokenpeak.report.site.known_words import KnownWords
from tokenpeak.spec.axes import Alternative
from tokenpeak.spec.sweep import read_spec

WORD = "zanzibarium"
"""Looks like a word, in every text that anybody may have written."""


@pytest.fixture(scope="module")
def sown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose logs, messages and settings have the word."""
    folder = tmp_path_factory.mktemp("home") / "20261120-220000-sown-lab"
    path = make_archive(folder, axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=3, requests=8).path
    raw = json.loads((path / "sweep.json").read_text())
    raw["spec"]["description"] = f"For {WORD}."
    raw["provenance"]["packages"] = {WORD: "1"}
    raw["nodes"][0]["problems"] = [f"The disk of {WORD} is full."]
    (path / "sweep.json").write_text(json.dumps(raw))
    for file in path.glob("trials/*.json"):
        trial: dict[str, Any] = json.loads(file.read_text())
        trial["failure"] = {"phase": "load", "cause": "unknown", "message": f"{WORD} fell", "evidence": [f"at {WORD}"]}
        trial["argv"] += ["--owner", WORD, f"--for={WORD}", "--max-model-len", "4096"]
        trial["config"]["flags"]["owner"] = WORD
        trial["config"]["env"]["OWNER"] = WORD
        for run in trial["runs"]:
            run["failure_messages"] = {"http_status": f"says {WORD}"}
        file.write_text(json.dumps(trial))
    for log in path.glob("trials/*.zst"):
        log.write_bytes(zstandard.ZstdCompressor().compress(f"INFO of {WORD}\n".encode()))
    return path


def packed(sown: Path, target: Path, *options: str) -> str:
    """Pack it; what is said."""
    done = CliRunner().invoke(
        commands, ["archive", str(sown), "--output", str(target), *options], catch_exceptions=False
    )
    assert 0 == done.exit_code, done.stderr
    return done.stdout


def test_logs_and_free_text_stay_home(sown: Path, tmp_path: Path) -> None:
    """Nothing of them is packed or exported, and what stays is said."""
    said = packed(sown, tmp_path / "a.tar.zst")
    done = CliRunner().invoke(
        commands, ["export", str(sown), "--output", str(tmp_path / "out")], catch_exceptions=False
    )

    assert leaks(sown, [WORD])
    assert [] == leaks(tmp_path / "a.tar.zst", [WORD])
    assert 0 == done.exit_code, done.stderr
    assert [] == leaks(tmp_path / "out", [WORD])
    assert "logs and free text: " in said
    assert WORD not in said


def test_they_leave_where_they_are_asked_for(sown: Path, tmp_path: Path) -> None:
    """With --texts logs and messages are there, and values of settings that nobody knows still are not."""
    packed(sown, tmp_path / "a.tar.zst", "--texts")
    found = leaks(tmp_path / "a.tar.zst", [WORD])

    assert any("engine.log" in place for place in found)
    assert any("fell" in place for place in found)
    assert not any(word in place for place in found for word in ("owner", "OWNER", "--for"))


def test_what_anybody_may_have_written_is_free_text() -> None:
    """Whatever a message, a description, a problem or a prompt is called, its rule is one by which it stays."""
    names = ("message", "description", "problem", "problems", "prompt", "evidence", "failure_messages")
    loose = [
        f"{record.__name__}.{name}"
        for record, rules in RULES.items()
        for name, rule in rules.items()
        if name in names and rule not in (FieldRule.FREE, FieldRule.PRIVATE)
    ]

    assert [] == loose


@pytest.mark.parametrize(
    "given",
    [
        "fixed: {name: f, env: {WANDB_KEY: abcd}}",
        "fixed: {name: f, env: {MY_PAT: abcd}}",
        "fixed: {name: f, env: {DB_PASS: abcd}}",
        "description: made with sk-proj-abcdefghijklmnop",
        "description: 'see eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln'",
    ],
)
def test_a_spec_with_a_secret_by_another_name_is_refused(given: str, tmp_path: Path) -> None:
    """A key by a name of somebody's own, and a token in running text, never get into an archive."""
    workload = "{kind: synthetic, name: s, input_tokens: 16, output_tokens: 8}"
    load = f"{{workload: {workload}, levels: [{{concurrency: 4, requests: 16}}]}}"
    (tmp_path / "mine.yml").write_text(f"workloads: [{load}]\n{given}\n")

    with pytest.raises(SpecError, match="looks like a secret"):
        read_spec("mine", tmp_path)


OWN_SETTINGS = {
    "variables that begin as known ones": (
        "env",
        {
            "VLLM_OUR_PROJECT": WORD,
            "CUDA_CUSTOMER": WORD,
            "TRITON_NOTE": f"{WORD} pin",
            "RAY_NAMESPACE": WORD,
            "NCCL_HOSTID": WORD,
            "VLLM_USAGE_SOURCE": WORD,
            "TOKENPEAK_SIM_NOTE": WORD,
        },
    ),
    "keys of JSON": (
        "flags",
        {
            "kv_transfer_config": json.dumps(
                {
                    "kv_role": "kv_both",
                    "engine_id": WORD,
                    "extra": {"tenant": WORD, "master": f"{WORD}:2379", "b": [WORD]},
                }
            ),
            "additional_config": json.dumps([{"customer": WORD}]),
            "kv_transfer_config.bucket": WORD,
        },
    ),
    "modules": (
        "flags",
        {
            "middleware": f"{WORD}.auth.Middleware",
            "worker_cls": f"{WORD}.Worker",
            "worker_extension_cls": f"vllm_{WORD}.Extension",
            "logits_processors": json.dumps([f"{WORD}.lp:P"]),
            "additional_config": json.dumps({"scheduler_cls": f"{WORD}.S"}),
        },
    ),
}


@pytest.mark.parametrize("kind", OWN_SETTINGS)
def test_settings_of_somebody_s_own_stay(kind: str) -> None:
    """Values under names that no release and no library has; in a config and in a command line, and twice cleaned."""
    where, settings = OWN_SETTINGS[kind]
    cleaner = Cleaner(KnownWords(labels={}, models={}, kinds={}), {})
    once = cleaner.record(Alternative.model_validate({"name": "a", where: settings}))
    words = [f"{name}={value}" for name, value in settings.items()]
    argv = [*words, "vllm"] if where == "env" else ["vllm", *(f"--{word}" for word in words)]

    assert WORD not in once.model_dump_json()
    assert WORD not in str([*cleaner._argv(argv)])
    assert once == Cleaner(KnownWords(labels={}, models={}, kinds={}), {}).record(once)


KV_TRANSFER = {
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
    "kv_transfer_config": json.dumps(KV_TRANSFER),
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
def placed(tmp_path: Path) -> Path:
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
def test_no_name_of_a_place_leaves(placed: Path, tmp_path: Path, *, texts: bool) -> None:
    """From flags, variables, JSON, the command line, names of choices and, where they are asked for, texts."""
    assert leaks(placed, [WORD])

    cleaned_copy(placed, tmp_path / "copy", node_names=False, texts=texts)

    assert [] == leaks(tmp_path / "copy", [WORD])


@pytest.mark.parametrize("name", STAYS)
def test_what_everybody_has_stays(name: str) -> None:
    """Loopback, every address, numbers, and names of models on the hub; as a flag and in a command line."""
    cleaner = Cleaner(KnownWords(labels={}, models={}, kinds={}), {})

    assert STAYS[name] == cleaner._setting(name, STAYS[name])
    assert [f"--{name}", STAYS[name]] == [*cleaner._argv([f"--{name}", STAYS[name]])]
