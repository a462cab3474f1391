"""Renames: flags and variables, speculative decoding among them, that some releases have and others have not.

Each rule takes the flags that the release at hand lacks and gives what says the same to it; a flag that no rule
knows is an error with advice. Sources are the releases' own arg_utils.py and deprecation texts.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tokenpeak.vllm.flags import json_value

SPECULATIVE = {
    "speculative_model": "model",
    "num_speculative_tokens": "num_speculative_tokens",
    "speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "speculative_model_quantization": "quantization",
    "speculative_max_model_len": "max_model_len",
    "speculative_disable_by_batch_size": "disable_by_batch_size",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
}
"""0.7.3 engine/arg_utils.py → the keys of 0.8.5's speculative_config (config.py SpeculativeConfig)."""

RENAMED = {
    "override_pooler_config": "pooler_config",  # 0.11.2: deprecated in favour of
    "cuda_graph_sizes": "cudagraph_capture_sizes",  # 0.11.2: deprecated in favour of
}

ADVICE = {
    "swap_space": "V1 preempts by recomputing and swaps nothing; leave it out.",
    "num_scheduler_steps": "Multi-step scheduling was V0's; V1 overlaps scheduling by itself (async_scheduling).",
    "preemption_mode": "V1 always recomputes; leave it out.",
    "scheduler_delay_factor": "It was V0's; leave it out.",
    "max_seq_len_to_capture": "V1 captures by batch size: use cudagraph_capture_sizes or max_cudagraph_capture_size.",
    "max_num_partial_prefills": "Long prefills are limited by long_prefill_token_threshold.",
    "max_long_partial_prefills": "Long prefills are limited by long_prefill_token_threshold.",
    "rope_scaling": 'Use hf_overrides: {"rope_scaling": …}.',
    "rope_theta": 'Use hf_overrides: {"rope_theta": …}.',
    "device": "The engine finds its platform itself; leave it out.",
    "disable_log_requests": "Use enable_log_requests: false.",
    "enable_log_requests": "Before 0.10 it is disable_log_requests: true or false.",
    "task": "Use runner: generate.",
    "runner": "Before 0.10 it is task: generate.",
    "guided_decoding_backend": "Use structured_outputs_config: {backend: …}.",
    "num_redundant_experts": "Use eplb_config: {num_redundant_experts: …}.",
    "enable_multimodal_encoder_data_parallel": "Use mm_encoder_tp_mode: data.",
    "disable_mm_preprocessor_cache": "Use mm_processor_cache_gb: 0.",
    "enable_reasoning": "reasoning_parser alone enables it since 0.9; leave it out.",
    "disable_async_output_proc": "It was V0's; leave it out.",
    "calculate_kv_scales": "Scales come from the checkpoint; leave it out.",
    "VLLM_USE_V1": "V0 is gone since 0.11; pin an older engine to measure it.",
}
"""Advice on a flag or variable that is gone and has no successor."""


def succeed(
    flags: Mapping[str, Any], env: Mapping[str, str], known: Collection[str], variables: Collection[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags and variables in the words of a release that takes the flags `known` and reads `variables`.

    What no rule knows is left as it is, for the caller to complain about.
    """
    new, environment = dict(flags), dict(env)
    for old, name in RENAMED.items():
        for given, wanted in ((old, name), (name, old)):
            if given in new and given not in known and wanted in known:
                new[wanted] = new.pop(given)
    _speculation(new, known)
    _attention(new, environment, known, variables)
    if environment.get("VLLM_USE_V1") == "1" and "VLLM_USE_V1" not in variables:
        del environment["VLLM_USE_V1"]  # there is only V1 since 0.11
    return new, environment


def _fold(flags: dict[str, Any], known: Collection[str], keys: Mapping[str, str], config: str) -> None:
    """Flags of their own become keys of one JSON flag."""
    gone = [name for name in keys if name in flags and name not in known]
    if gone and config in known:
        given = flags.get(config)
        merged = {keys[name]: flags.pop(name) for name in gone}
        flags[config] = json.dumps({**merged, **(_object(given) or {})})


def _object(given: object) -> dict[str, Any] | None:
    """The object of a flag's JSON text; None for what is none."""
    value = json_value(given) if isinstance(given, str) else None
    return value if isinstance(value, dict) else None


def _speculation(flags: dict[str, Any], known: Collection[str]) -> None:
    if flags.get("speculative_model") == "[ngram]" and "speculative_model" not in known:
        flags.pop("speculative_model")
        flags.setdefault("speculative_config", json.dumps({"method": "ngram"}))
    _fold(flags, known, SPECULATIVE, "speculative_config")
    given = flags.get("speculative_config")
    config = _object(given)
    if config is not None and "speculative_config" not in known and "speculative_model" in known:
        names = {key: name for name, key in SPECULATIVE.items()}
        if config.pop("method", None) == "ngram":
            config["model"] = "[ngram]"
        if set(config) <= set(names):
            del flags["speculative_config"]
            flags |= {names[key]: value for key, value in config.items()}


def _attention(flags: dict[str, Any], env: dict[str, str], known: Collection[str], variables: Collection[str]) -> None:
    """VLLM_ATTENTION_BACKEND up to 0.14.1; --attention-backend since 0.13."""
    name, flag = "VLLM_ATTENTION_BACKEND", "attention_backend"
    if name in env and name not in variables and flag in known:
        flags.setdefault(flag, env.pop(name))
    elif flag in flags and flag not in known and name in variables:
        env.setdefault(name, str(flags.pop(flag)))


DRAFTLESS = ("ngram", "[ngram]", "suffix")
"""Methods that guess from the text itself."""

TRAINED = ("eagle", "eagle3", "medusa", "mlp_speculator", "mtp")
"""Methods whose draft is trained for the model; names that end so, such as deepseek_mtp, too."""


def speculative_config(flags: Mapping[str, Any]) -> dict[str, Any] | None:
    """The speculative set-up that flags ask for, in the keys of speculative_config; None when they ask for none."""
    given = flags.get("speculative_config")
    if isinstance(given, dict):
        return given
    if isinstance(given, str) and given.startswith("{"):
        value = json_value(given)
        return value if isinstance(value, dict) else None
    config = {key: flags[name] for name, key in SPECULATIVE.items() if flags.get(name) is not None}
    return config if "model" in config or "num_speculative_tokens" in config else None


def speculation_refused(
    flags: Mapping[str, Any], *, release: tuple[int, int], v1: bool, tensor_parallel: int, pipeline: int
) -> str | None:
    """Why a release would refuse the speculative set-up of these flags; None when it takes it, or there is none."""
    config = speculative_config(flags)
    if config is None:
        return None
    tokens, method, model = (config.get(key) for key in ("num_speculative_tokens", "method", "model"))
    if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
        return f"num_speculative_tokens must be greater than zero, not {tokens!r}"
    draftless = method in DRAFTLESS or model in DRAFTLESS
    trained = any(str(method or "").endswith(name) for name in TRAINED)
    if model is None and not draftless and not str(method or "").endswith("mtp"):
        return "the speculative set-up names neither a draft model nor a method that needs none"
    if tokens is None and (draftless or method == "draft_model"):
        return "num_speculative_tokens must be given"
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if low is not None and high is not None and low > high:
        return f"prompt_lookup_min {low} must not be more than prompt_lookup_max {high}"
    parallel = config.get("draft_tensor_parallel_size")
    if parallel is not None and parallel not in (1, tensor_parallel):
        return f"draft_tensor_parallel_size {parallel} must be 1 or tensor_parallel_size {tensor_parallel}"
    steps = flags.get("num_scheduler_steps")
    if isinstance(steps, int) and steps > 1:
        return f"speculation does not go with num_scheduler_steps {steps}"
    guessed = draftless or trained or _looks_trained(str(model or ""))
    if v1 and (0, 10) <= release < (0, 14) and not guessed:
        return "V1 has no draft models before 0.14, only ngram and trained heads such as EAGLE"
    if pipeline > 1 and not v1:
        return f"V0 does not speculate with pipeline_parallel_size {pipeline}"
    return None


def _looks_trained(model: str) -> bool:
    """0.11.2 config/speculative.py guesses the method from the draft's name."""
    return any(name in model.casefold() for name in ("eagle", "medusa", "mlp_speculator", "mtp"))
