"""Keys of a config.json: the names that families give the same thing, and what a family's own file leaves out."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenpeak.errors import FactsError
from tokenpeak.predict.layers import EXPERTS

FAMILIES = Path(__file__).parent / "data" / "families.json"
"""What a config.json leaves out: the defaults of its family."""


_UNCOUNTED = frozenset(
    [
        "cosmos3_edge",
        "deepseek_v4",
        "diffusion_gemma",
        "doge",
        "gemma3n",
        "gemma3n_text",
        "glm5_next",
        "hrm_text",
        "idefics",
        "inkling_mm_model",
        "inkling_text",
        "jetmoe",
        "mllama",
        "moshi",
        "phi4_multimodal",
        "qwen4_exp",
        "recurrent_gemma",
        "t5gemma2",
        "zamba",
        "zamba2",
        "zaya",
    ]
)
"""Families with parts that the formulas below do not know: nothing is predicted from their config.json."""
_LIKE_OTHERS = frozenset(
    [
        "baichuan",
        "deepseek_v32",
        "exaone",
        "internlm",
        "internlm2",
        "internlm3",
        "kimi_k2",
        "kimi_vl",
        "llama4_text",
        "minimax_m1",
        "minimax_text_01",
        "nemotron_h",
        "orion",
        "phi",
        "phi3small",
        "solar",
        "yi",
    ]
)
"""Families that the defaults do not have and whose layers are as those of others."""
_MAX_PLAUSIBLE = 10**7


@cache
def _families() -> Mapping[str, Mapping[str, Any]]:
    families: Mapping[str, Mapping[str, Any]] = json.loads(FAMILIES.read_text())["families"]
    return families


class ConfigKeys:
    """config.json with the names that families give the same thing."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        nested = config.get("text_config") or config.get("llm_config") or config.get("thinker_config")
        said: Mapping[str, Any] = {**config, **nested} if isinstance(nested, Mapping) else config
        families = _families()
        defaults = families.get(str(said.get("model_type"))) or families.get(str(config.get("model_type"))) or {}
        if any(said.get(key) for key in EXPERTS):
            # Files and defaults name the experts differently, as Qwen3-VL's and Transformers 5 do.
            defaults = {key: value for key, value in defaults.items() if key not in EXPERTS}
        self.config: Mapping[str, Any] = {**defaults, **said}
        self.name = name

    def count(self, *keys: str) -> int:
        """A positive whole number under the first of `keys` present; FactsError when missing or nonsense."""
        number = self.optional(*keys)
        if number is None:
            raise FactsError(
                f"config.json of {self.name} has no {' or '.join(keys)}. Add it to a copy of that file, and name the "
                "copy's folder as the model."
            )
        return number

    def optional(self, *keys: str) -> int | None:
        """The same, or None where none is present; 0 stands for none."""
        for key in keys:
            value = self.config.get(key)
            if value is None or value is False or value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_PLAUSIBLE:
                raise FactsError(
                    f"config.json of {self.name} says {key} = {value!r}; it must be a whole number from 1 to "
                    f"{_MAX_PLAUSIBLE:,}. Correct that file."
                )
            return value
        return None


def is_counted(family: str) -> bool:
    """Whether the layers of a family are known here, so that its parameters can be counted."""
    return family not in _UNCOUNTED and (family in _families() or family in _LIKE_OTHERS)
