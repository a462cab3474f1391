"""Settings that can change a model's answers, beyond rounding: all but those that are known not to.

A release adds flags faster than anyone learns what they do, so what is not listed here counts as one that can.
"""

import hashlib
import json
from collections.abc import Mapping

from tokenpeak.errors import FactsError
from tokenpeak.records import Config
from tokenpeak.vllm.flags import known_flags

_TUNED_WITH_SAME_ANSWERS = """
max_num_seqs max_num_batched_tokens max_num_scheduled_tokens max_num_partial_prefills max_long_partial_prefills
long_prefill_token_threshold enable_chunked_prefill scheduling_policy scheduler_delay_factor num_scheduler_steps
multi_step_stream_outputs stream_interval async_scheduling preemption_mode performance_mode enable_prefix_caching
prefix_caching_hash_algo block_size num_gpu_blocks_override gpu_memory_utilization device_memory_utilization
kv_cache_memory_bytes swap_space cpu_offload_gb cpu_offload_params max_model_len enforce_eager cudagraph_capture_sizes
max_cudagraph_capture_size max_seq_len_to_capture optimization_level tensor_parallel_size pipeline_parallel_size
data_parallel_size data_parallel_size_local data_parallel_backend enable_expert_parallel enable_eplb
disable_custom_all_reduce distributed_executor_backend numa_bind numa_bind_cpus numa_bind_nodes
safetensors_load_strategy max_parallel_loading_workers
"""
_OTHERS_WITH_SAME_ANSWERS = """
watermark cuda_graph_sizes api_server_count disable_frontend_multiprocessing seed max_logprobs max_num_queued_reqs
max_num_queued_tokens download_dir use_tqdm_on_load served_model_name disable_log_requests disable_log_stats
enable_log_requests uvicorn_log_level disable_uvicorn_access_log trust_remote_code enable_force_include_usage
enable_prompt_tokens_details enable_server_load_tracking enable_sleep_mode show_hidden_metrics_for_version
"""
_TUNED_WITH_OTHER_ANSWERS = """
additional_config all2all_backend attention_backend attention_config compilation_config dbo_decode_token_threshold
dbo_prefill_token_threshold decode_context_parallel_size device disable_async_output_proc disable_cascade_attn
disable_chunked_mm_input disable_hybrid_kv_cache_manager disable_mm_preprocessor_cache disable_sliding_window dtype
enable_batch_sharded_sampling enable_dbo enable_flashinfer_autotune eplb_config expert_placement_strategy
gdn_prefill_backend kernel_config kv_cache_dtype kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill
linear_backend load_format mamba_backend mamba_block_size mamba_cache_dtype mm_encoder_attn_backend mm_encoder_tp_mode
moe_backend num_lookahead_slots num_speculative_tokens prefill_context_parallel_size prefill_schedule_interval
quantization scheduler_reserve_full_isl spec_method spec_model spec_tokens speculative_config
speculative_draft_tensor_parallel_size speculative_model ubatch_size use_v2_block_manager
"""
SAME_ANSWERS = frozenset(_TUNED_WITH_SAME_ANSWERS.split()) | frozenset(_OTHERS_WITH_SAME_ANSWERS.split())
"""Flags of scheduling, memory, graphs, parallelism and logging."""
TUNING = frozenset(_TUNED_WITH_SAME_ANSWERS.split()) | frozenset(_TUNED_WITH_OTHER_ANSWERS.split())
"""Flags that a user tunes."""
_ENV_WORDS = """
CUDA_VISIBLE_DEVICES OMP_NUM_THREADS VLLM_CPU_OMP_THREADS_BIND VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_KVCACHE_SPACE
VLLM_WORKER_MULTIPROC_METHOD VLLM_HOST_IP VLLM_PORT VLLM_CACHE_ROOT VLLM_CONFIG_ROOT VLLM_NO_USAGE_STATS
VLLM_DO_NOT_TRACK VLLM_CONFIGURE_LOGGING VLLM_SLEEP_WHEN_IDLE VLLM_SKIP_P2P_CHECK VLLM_USE_RAY_COMPILED_DAG
VLLM_USE_RAY_SPMD_WORKER VLLM_ENGINE_ITERATION_TIMEOUT_S VLLM_ENGINE_READY_TIMEOUT_S VLLM_RPC_TIMEOUT
VLLM_DISABLE_COMPILE_CACHE VLLM_ENABLE_V1_MULTIPROCESSING
"""
_SAME_ANSWERS_ENV = frozenset(_ENV_WORDS.split())
_SAME_ANSWERS_PREFIXES = ("NCCL_", "GLOO_", "RAY_", "HF_", "PYTORCH_", "VLLM_LOG", "TOKENPEAK_SIM_")
_DAMAGE = "TOKENPEAK_SIM_FAULT"
"""By which a simulated engine's answers are made wrong."""


def answer_settings(config: Config, engine_version: str | None = None) -> dict[str, object]:
    """Settings of a config that can change answers: model, flags beside their defaults, environment, build."""
    try:
        defaults = {name: facts.default for name, facts in known_flags(config.engine_version or engine_version).items()}
    except FactsError:
        defaults = {}
    flags = {
        name: value
        for name, value in config.flags.items()
        if name not in SAME_ANSWERS and value is not None and not (name in defaults and defaults[name] == value)
    }
    env = {name: value for name, value in config.env.items() if not _is_same(name)}
    build = {"revision": config.model.revision, "engine": config.engine, "engine_version": config.engine_version}
    return {
        "model": config.model.name,
        **flags,
        **env,
        **{name: value for name, value in build.items() if value is not None},
    }


def answers_key(config: Config, engine_version: str | None = None) -> str:
    """Identifies the settings that can change answers: configs with the same key answer alike, but for rounding."""
    settings = json.dumps(answer_settings(config, engine_version), sort_keys=True, default=str)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def other_settings(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, object]:
    """Settings of `ours` that are otherwise in `theirs`; None for what only they have."""
    return {
        name: ours.get(name) for name in (*ours, *(theirs.keys() - ours.keys())) if ours.get(name) != theirs.get(name)
    }


def _is_same(name: str) -> bool:
    return name != _DAMAGE and (name in _SAME_ANSWERS_ENV or name.startswith(_SAME_ANSWERS_PREFIXES))


def is_tuning(name: str) -> bool:
    """Whether a flag, under its name with underscores, is one of them; `no_NAME` is."""
    return name in TUNING or name.removeprefix("no_") in TUNING
