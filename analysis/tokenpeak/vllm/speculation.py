"""Speculative decoding: which set-ups a release refuses."""

from collections.abc import Mapping
from typing import Any

from tokenpeak.vllm.flags import json_value
from tokenpeak.vllm.renames import SPECULATIVE

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
        found = json_value(given)
        return found if isinstance(found, dict) else None
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
