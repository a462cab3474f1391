"""A spec with a secret in it is refused before anything runs, with the way to do it; a recorded one stays readable."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak.errors import SpecError
from tokenpeak.spec.sweep import parse_spec, read_spec

SECRET = "Zq7Wm2Xc9Vb4Nk1Lp"
WORKLOADS = [
    {
        "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
        "levels": [{"concurrency": 4, "requests": 16}],
    }
]
SECRETS: dict[str, dict[str, Any]] = {
    "a token of the hub": {"fixed": {"name": "fixed", "env": {"HF_TOKEN": SECRET}}},
    "a password": {"fixed": {"name": "fixed", "env": {"PROXY_PASSWORD": SECRET}}},
    "a token under another name": {"fixed": {"name": "fixed", "env": {"VLLM_THING": "hf_" + SECRET * 2}}},
    "a proxy's password": {"fixed": {"name": "fixed", "env": {"HTTPS_PROXY": f"http://bob:{SECRET}@proxy:3128"}}},
    "the engine's API key": {"fixed": {"name": "fixed", "flags": {"api_key": SECRET}}},
    "an alternative's environment": {"axes": {"a": [{"name": "x", "env": {"HF_TOKEN": SECRET}}]}},
    "an argument within a value": {"fixed": {"name": "fixed", "flags": {"extra": f"--token {SECRET}"}}},
    "the URL of a server": {"endpoint": {"url": f"http://router:8000/v1?api_key={SECRET}", "model": "m"}},
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_without_being_repeated(name: str, tmp_path: Path) -> None:
    """The complaint names the place and the file that it belongs into, and does not repeat the secret."""
    (tmp_path / "mine.yml").write_text(yaml.safe_dump({**SECRETS[name], "workloads": WORKLOADS}))

    with pytest.raises(SpecError, match="tokenpeak_engine_env_file") as refused:
        read_spec("mine", tmp_path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", SECRETS)
def test_a_recorded_spec_stays_readable(name: str) -> None:
    """An archive that an older TokenPeak wrote is read and resumed, whatever is in it."""
    parse_spec({**copy.deepcopy(SECRETS[name]), "workloads": WORKLOADS}, Path("sweep.json"))


@pytest.mark.parametrize(
    "given",
    [
        {"env": {"TOKENIZERS_PARALLELISM": "false", "VLLM_USE_V1": "1", "VLLM_TOKEN_LIMIT": "2048"}},
        {"flags": {"max_num_batched_tokens": 512, "tokenizer": "meta-llama/Llama-3.1-8B", "skip_tokenizer_init": True}},
        {"flags": {"enable_prompt_tokens_details": True, "tokenizer_mode": "auto", "chat_template": "/a/b.jinja"}},
    ],
)
def test_what_is_no_secret_is_taken(given: dict[str, Any], tmp_path: Path) -> None:
    """Tokens that are counted and tokenizers are no secrets."""
    raw = {"fixed": {"name": "fixed", **given}, "workloads": WORKLOADS, "description": "The password: is none."}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(raw))

    assert "mine" == read_spec("mine", tmp_path).name
