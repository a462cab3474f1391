"""Precision of a config: which model it serves, in which number formats of weights, KV cache and computation.

Two configs of equal precision compute the same answers but for rounding; of others, only a measurement of quality says
how far apart they are.
"""

from dataclasses import dataclass

from tokenpeak.records import Config

SIXTEEN_BITS = "16 bits"
_SIXTEEN = ("none", "auto", "half", "float16", "bfloat16")
"""What `dtype` and `kv_cache_dtype` may say that comes to 16 bits: vLLM's `auto` uses no wider format."""
_SAME = {"fp8_e4m3": "fp8", "float": "float32"}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A model with its number formats; `quantization` is empty where the checkpoint is served as it is."""

    model: str
    revision: str
    quantization: str
    kv_cache: str
    computed: str

    def changes(self, other: "Precision") -> tuple[str, ...]:
        """What this has otherwise than `other`, in words; empty where the two are equal."""
        found = []
        if (self.model, self.revision) != (other.model, other.revision):
            found.append(f"model {self.model}{f' {self.revision}' if self.revision else ''}")
        if self.quantization != other.quantization:
            found.append(f"{self.quantization or 'unquantized'} weights")
        if self.kv_cache != other.kv_cache:
            found.append(f"{self.kv_cache.replace(SIXTEEN_BITS, '16-bit')} KV cache")
        if self.computed != other.computed:
            found.append(f"computation in {self.computed}")
        return tuple(found)


def precision_of(config: Config) -> Precision:
    """The precision that a config asks for."""
    flags = config.flags
    return Precision(
        model=config.model.name,
        revision=config.model.revision or "",
        quantization=str(flags.get("quantization") or ""),
        kv_cache=_format(flags.get("kv_cache_dtype")),
        computed=_format(flags.get("dtype")),
    )


def _format(value: object) -> str:
    word = str(value if value is not None else "none").lower()
    return SIXTEEN_BITS if word in _SIXTEEN else _SAME.get(word, word)
