"""Tuning flags: those that change how fast an engine is, and not what its clients see.

A config that is carried into production brings its own of these and takes away what production had of them: it was
measured without. All others of production's flags stay: its address, names, keys, templates, parsers, adapters.
"""

_NAMES = """
additional_config all2all_backend async_scheduling attention_backend attention_config block_size compilation_config
cpu_offload_gb cpu_offload_params cudagraph_capture_sizes data_parallel_backend data_parallel_size
data_parallel_size_local dbo_decode_token_threshold dbo_prefill_token_threshold decode_context_parallel_size device
device_memory_utilization disable_async_output_proc disable_cascade_attn disable_chunked_mm_input
disable_custom_all_reduce disable_hybrid_kv_cache_manager disable_mm_preprocessor_cache disable_sliding_window
distributed_executor_backend dtype enable_batch_sharded_sampling enable_chunked_prefill enable_dbo enable_eplb
enable_expert_parallel enable_flashinfer_autotune enable_prefix_caching enforce_eager eplb_config
expert_placement_strategy gdn_prefill_backend gpu_memory_utilization kernel_config kv_cache_dtype
kv_cache_memory_bytes kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill linear_backend load_format
long_prefill_token_threshold mamba_backend mamba_block_size mamba_cache_dtype max_cudagraph_capture_size
max_long_partial_prefills max_model_len max_num_batched_tokens max_num_partial_prefills max_num_scheduled_tokens
max_num_seqs max_parallel_loading_workers max_seq_len_to_capture mm_encoder_attn_backend mm_encoder_tp_mode
moe_backend multi_step_stream_outputs num_gpu_blocks_override num_lookahead_slots num_scheduler_steps
num_speculative_tokens numa_bind numa_bind_cpus numa_bind_nodes optimization_level performance_mode
pipeline_parallel_size preemption_mode prefill_context_parallel_size prefill_schedule_interval
prefix_caching_hash_algo quantization safetensors_load_strategy scheduler_delay_factor scheduler_reserve_full_isl
scheduling_policy spec_method spec_model spec_tokens speculative_config speculative_draft_tensor_parallel_size
speculative_model stream_interval swap_space tensor_parallel_size ubatch_size use_v2_block_manager
"""
TUNING = frozenset(_NAMES.split())


def is_tuning(name: str) -> bool:
    """Whether a flag, under its name with underscores, is one of them; `no_NAME` is."""
    return name in TUNING or name.removeprefix("no_") in TUNING
