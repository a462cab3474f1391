"""Precision of a config, and by how many settings it differs from another."""

from dataclasses import dataclass

from tokenpeak.errors import FactsError
from tokenpeak.predict.quantization import gguf_type
from tokenpeak.records import Config
from tokenpeak.vllm.flags import known_flags

SIXTEEN_BITS = "16 bits"
_SIXTEEN = ("none", "auto", "half", "float16", "bfloat16")
"""Words of `dtype` and `kv_cache_dtype` that come to 16 bits: vLLM's `auto` uses no wider format."""
_SIXTEEN_OF_GGUF = ("F16", "BF16")
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
        """Differences from `other`, in words; empty where the two are equal."""
        changed = []
        if (self.model, self.revision) != (other.model, other.revision):
            changed.append(f"model {self.model}{f' {self.revision}' if self.revision else ''}")
        if self.quantization != other.quantization:
            changed.append(f"{self.quantization or 'unquantized'} weights")
        if self.kv_cache != other.kv_cache:
            changed.append(f"{self.kv_cache.replace(SIXTEEN_BITS, '16-bit')} KV cache")
        if self.computed != other.computed:
            changed.append(f"computation in {self.computed}")
        return tuple(changed)


def precision_of(config: Config) -> Precision:
    """The precision that a config asks for."""
    flags = config.flags
    stored = gguf_type(config.model.name) or ""
    return Precision(
        model=config.model.name,
        revision=config.model.revision or "",
        quantization=str(flags.get("quantization") or ("" if stored in _SIXTEEN_OF_GGUF else stored)),
        kv_cache=_format(flags.get("kv_cache_dtype")),
        computed=_format(flags.get("dtype")),
    )


def _format(value: object) -> str:
    word = str(value if value is not None else "none").lower()
    return SIXTEEN_BITS if word in _SIXTEEN else _SAME.get(word, word)


def setting_changes(config: Config, reference: Config | None, version: str | None) -> int:
    """How many settings differ from the reference's, whose absence stands for the engine's defaults.

    What a config leaves unset stands at the default of its engine, `version` where it does not name one.
    """
    flags = reference.flags if reference is not None else {}
    env = reference.env if reference is not None else {}
    runs = reference.engine_version if reference is not None else None
    ours, theirs = _defaults(config.engine_version or version), _defaults(runs or version)
    differing = sum(
        _set(config.flags, name, ours) != _set(flags, name, theirs) for name in config.flags.keys() | flags.keys()
    )
    differing += sum(config.env.get(name) != env.get(name) for name in config.env.keys() | env.keys())
    if reference is not None:
        differing += (config.model.name, config.model.revision) != (reference.model.name, reference.model.revision)
        differing += config.engine_version != runs
    return differing


def _set(flags: dict[str, bool | int | float | str | None], name: str, defaults: dict[str, object]) -> object:
    """A flag's value; the engine's default where the flag is left out."""
    value = flags.get(name)
    return defaults.get(name) if value is None else value


def _defaults(version: str | None) -> dict[str, object]:
    """Each flag's default; none are known of an engine that is not vLLM."""
    try:
        return {name: facts.default for name, facts in known_flags(version).items()}
    except FactsError:
        return {}
