"""What an engine runs with, by lines of public logs of several releases, and by the recorded log of 0.32."""

# ruff: noqa: E501 — log lines are as long as the engine writes them
from pathlib import Path

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.records import StartupFacts
from tokenpeak.report.trials.trial_page import chosen
from tokenpeak.vllm.engine_choices import engine_choices

RECORDED = Path(__file__).parent / "logs" / "v1-0.32-started.log"
LONG = ", ".join(f"'vllm::operation_{number}'" for number in range(300))
"""Of a line with a configuration that is longer than any other line is looked through."""

V0 = """\
INFO 08-06 01:39:17 llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: model='m', enforce_eager=False, kv_cache_dtype=auto,  device_config=cuda, num_scheduler_steps=1, multi_step_stream_outputs=True, enable_prefix_caching=None, chunked_prefill_enabled=False, use_async_output_proc=True, compilation_config={"splitting_ops":[],"max_capture_size":256}, use_cached_outputs=False,
INFO 08-06 01:39:18 cuda.py:229] Using Flash Attention backend.
"""
V0_11 = """\
INFO 03-03 19:26:05 [scheduler.py:205] Chunked prefill is enabled with max_num_batched_tokens=16384.
(EngineCore_DP0 pid=39535) INFO 03-03 19:33:10 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m', kv_cache_dtype=fp8, device_config=cuda, enable_prefix_caching=True, chunked_prefill_enabled=True, pooler_config=None, compilation_config={"level":3,"inductor_passes":{},"cudagraph_mode":[2,1],"use_cudagraph":true,"cudagraph_num_of_warmups":1}
(EngineCore_DP0 pid=39544) INFO 03-03 19:33:23 [topk_topp_sampler.py:55] Using FlashInfer for top-p & top-k sampling.
(EngineCore_DP0 pid=39535) INFO 03-03 19:33:23 [cuda.py:366] Using Flash Attention backend on V1 engine.
"""
V0_19 = f"""\
(APIServer pid=1) INFO 04-16 11:16:17 [vllm.py:790] Asynchronous scheduling is enabled.
(EngineCore pid=271) INFO 04-16 11:16:23 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen2.5-72B-Instruct', speculative_config=None, kv_cache_dtype=auto, enable_prefix_caching=True, enable_chunked_prefill=True, pooler_config=None, compilation_config={{'mode': <CompilationMode.VLLM_COMPILE: 3>, 'splitting_ops': [{LONG}], 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'cudagraph_num_of_warmups': 1}}
(EngineCore pid=271) INFO 07-28 10:03:02 [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION'].
(EngineCore pid=271) INFO 07-28 10:03:02 [cuda.py:482] Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN'].
(EngineCore pid=271) WARNING 06-01 21:56:11 [compilation.py:1416] CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInferBackend (support: AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE
(EngineCore pid=271) WARNING 06-01 21:56:12 [vllm.py:1606] Async scheduling not supported with draft_model-based speculative decoding and will be disabled.
"""


@pytest.mark.parametrize(
    ("log", "choices"),
    [
        (V0, {"attention_backend": "Flash Attention", "enable_chunked_prefill": "off", "kv_cache_dtype": "auto"}),
        (
            V0_11,
            {
                "attention_backend": "Flash Attention",
                "enable_chunked_prefill": "on",
                "enable_prefix_caching": "on",
                "kv_cache_dtype": "fp8",
                "cudagraph_mode": "FULL_AND_PIECEWISE",
                "max_num_batched_tokens": "16384",
            },
        ),
        (
            V0_19,
            {
                "attention_backend": "FLASH_ATTN",
                "enable_chunked_prefill": "on",
                "enable_prefix_caching": "on",
                "kv_cache_dtype": "auto",
                "cudagraph_mode": "PIECEWISE",
                "async_scheduling": "off",
            },
        ),
        ("", {}),
    ],
    ids=["0.7.3", "0.11.0", "0.19.0", "none"],
)
def test_choices_are_read_of_each_releases_words(log: str, choices: dict[str, str]) -> None:
    """Backend, chunks, caching, graphs and scheduling, of the model and as last corrected; nothing that is not there."""
    assert choices == engine_choices(log)


def test_the_recorded_log_has_its_choices() -> None:
    """The real CPU engine 0.32, whose line is cut before its graphs, and which names no backend."""
    found = engine_choices(RECORDED.read_text())

    assert {"enable_chunked_prefill": "on", "enable_prefix_caching": "on", "kv_cache_dtype": "auto"} == found


def test_a_trials_page_shows_what_nobody_set() -> None:
    """Settings that the config has, as a flag or a variable, are none of the engine's own."""
    trial, _ = trial_record(sweep_spec())
    settings = {"flags": {"max_num_batched_tokens": 8192}, "env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}}
    choices = {"attention_backend": "FLASHINFER", "enable_chunked_prefill": "on", "max_num_batched_tokens": "8192"}
    started = {"config": trial.config.model_copy(update=settings), "startup": StartupFacts(engine_choices=choices)}

    assert "chunked prefill on" == chosen(trial.model_copy(update=started))
