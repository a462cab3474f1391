"""Quantization of a checkpoint: how wide each of its matrices is stored, by method, groups and kept modules.

A checkpoint keeps some modules at 16 bits, and may have groups of other widths. Both name modules as the checkpoint
does; here a module is named below its decoder, such as `layers.3.self_attn.q_proj`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from tokenpeak.errors import FactsError, suggestion


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One method of storing weights. `bits` counts scales and zero points; `compute` is the dtype of the products."""

    method: str
    bits: float
    compute: str
    """fp16, fp8, int8 or fp4; a device without units for it multiplies at its 16-bit rate."""
    kv_cache_dtype: str | None = None
    """The KV cache's dtype when the checkpoint brings one."""
    is_known: bool = True
    """False: a method that is not in METHODS, whose `bits` say nothing."""
    has_blocks: bool = False
    """Weights of 8 bits have a scale for each block of 128 × 128."""


def _grouped(bits: int, group: int, zeros: bool = True) -> float:
    """Bits of a weight with one 16-bit scale, and one zero point, for each `group` weights."""
    return bits + (16 + (bits if zeros else 0)) / group if group > 0 else float(bits)


METHODS: dict[str, Quantization] = {
    method.method: method
    for method in (
        Quantization(method="fp8", bits=8.0, compute="fp8"),
        Quantization(method="modelopt", bits=8.0, compute="fp8"),
        Quantization(method="fbgemm_fp8", bits=8.0, compute="fp8"),
        Quantization(method="ptpc_fp8", bits=8.0, compute="fp8"),
        Quantization(method="awq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="awq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="auto-round", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="moe_wna16", bits=_grouped(4, 128), compute="fp16"),
        # NF4 in blocks of 64 with a 32-bit maximum each.
        Quantization(method="bitsandbytes", bits=4.5, compute="fp16"),
        Quantization(method="gguf", bits=4.85, compute="fp16"),
        Quantization(method="experts_int8", bits=8.0, compute="fp16"),
        Quantization(method="compressed-tensors", bits=8.0, compute="fp8"),
        # Blocks of 32 with an 8-bit scale, and of 16 with an 8-bit scale.
        Quantization(method="mxfp4", bits=4.25, compute="fp16"),
        Quantization(method="modelopt_fp4", bits=4.5, compute="fp4"),
    )
}

_SAME = {"auto_round": "auto-round", "intel/auto-round": "auto-round", "gpt_oss_mxfp4": "mxfp4"}
"""Other names of a method."""

_OF_EXPERTS = frozenset({"mxfp4", "experts_int8", "moe_wna16"})
"""Methods that store nothing but experts narrow. Source: 0.32.0 model_executor/layers/quantization/mxfp4.py
get_quant_method, which leaves linear layers and attention as they are."""

_ALGORITHMS = {"NVFP4": "modelopt_fp4", "W4A16_AWQ": "awq", "FP8": "modelopt", "FP8_PB_WO": "modelopt"}
"""ModelOpt's names; those of mixed checkpoints stand at each layer."""

_KEPT_KEYS = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude",
    "exclude_modules",
    "llm_int8_skip_modules",
)
"""Keys under which tools list the modules that stay at full width."""


_GGUF_TYPE = re.compile(r"[.\-_]((?:I?Q|TQ)\d\w*|MXFP4\w*|B?F16|F32)(?:-\d+-of-\d+)?$", re.IGNORECASE)


def gguf_type(model: str) -> str | None:
    """The type of a GGUF file's weights as its name says it, such as `Q4_K_M`; `gguf` where it says none.

    None for a model that is no GGUF.
    """
    name = model.rpartition("/")[2]
    if not name.casefold().endswith((".gguf", "-gguf")):
        return None
    match = _GGUF_TYPE.search(name[: -len(".gguf")])
    return match[1].upper() if match else "gguf"


def quantization_named(method: str) -> Quantization:
    """The method as `--quantization` names it; raises FactsError for a word that is not in the table."""
    name = _SAME.get(method, method)
    if name not in METHODS:
        raise FactsError(f"Quantization method {method!r} is unknown. {suggestion(method, METHODS)}")
    return METHODS[name]


@dataclass(frozen=True)
class _Group:
    """Modules of one width."""

    is_member: Callable[[str], bool]
    bits: float | None


@dataclass(frozen=True)
class Scheme:
    """What a checkpoint says of its quantization: its main method, and the width of each module."""

    method: Quantization
    kept: tuple[str, ...] = ()
    groups: tuple[_Group, ...] = ()

    def bits(self, module: str, *, experts: bool) -> float | None:
        """Bits of a parameter of this module; None where it is stored at the checkpoint's dtype."""
        for group in self.groups:
            if group.is_member(module):
                return None if self._is_kept(module) else group.bits
        if self._is_kept(module) or module == "lm_head":
            return None
        if self.method.method in _OF_EXPERTS and not experts:
            return None
        return None if self.groups else self.method.bits

    def _is_kept(self, module: str) -> bool:
        return self._kept.is_member(module)

    @cached_property
    def _kept(self) -> "_Patterns":
        return _Patterns(self.kept)


class _Patterns:
    """Names of modules as tools write them: whole, the first part of one, with stars, as `re:` or as one word."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.names, self.words, self.stars, self.expressions = set(), set(), [], []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self.expressions.append(re.compile(pattern[3:]))
            elif "*" in pattern or "?" in pattern:
                self.stars.append(_below_decoder(pattern))
            elif "." in pattern:
                self.names.add(_below_decoder(pattern).rstrip("."))
            else:
                self.words.add(pattern)

    def is_member(self, module: str) -> bool:
        """Whether a pattern names this module, or one that it is part of."""
        parts = module.split(".")
        if self.words.intersection(parts) or any(
            ".".join(parts[:end]) in self.names for end in range(1, len(parts) + 1)
        ):
            return True
        if any(name.endswith("." + module) or module.endswith("." + name) for name in self.names if len(name) > 2):
            return True
        if any(fnmatchcase(module, star) or fnmatchcase(module, f"{star}.*") for star in self.stars):
            return True
        return any(each.match(name) for each in self.expressions for name in (f"model.{module}", module))


def _below_decoder(name: str) -> str:
    """A module's name without those of the models around the decoder."""
    return re.sub(r"^(?:model\.|language_model\.|backbone\.|transformer\.|thinker\.)+", "", name)


def scheme_of(config: Mapping[str, Any]) -> Scheme | None:
    """What config.json's quantization_config says; None when there is none."""
    raw = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(raw, Mapping):
        return None
    method = str(raw.get("quant_method", "")).casefold()
    method = _SAME.get(method, method)
    if method == "" and raw.get("config_groups"):
        method = "compressed-tensors"
    kept = tuple(str(each) for key in _KEPT_KEYS for each in _listed(raw.get(key)))
    kv = str(raw.get("kv_cache_quant_algo") or raw.get("kv_cache_scheme") or "").casefold()
    scheme = raw.get("kv_cache_scheme")
    kv_dtype = "fp8" if kv.startswith("fp8") or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8) else None
    if raw.get("config_groups"):
        return _by_groups(raw, "modelopt" if method.startswith("modelopt") else "compressed-tensors", kept, kv_dtype)
    if raw.get("quantized_layers"):
        return _by_layers(raw["quantized_layers"], kept, kv_dtype)
    named = METHODS.get(method)
    if named is None:
        return Scheme(Quantization(method=method, bits=16.0, compute="fp16", kv_cache_dtype=kv_dtype, is_known=False))
    algorithm = METHODS.get(_ALGORITHMS.get(str(raw.get("quant_algo", "")).upper(), ""))
    width, compute = named.bits, algorithm.compute if algorithm else named.compute
    bits, group = raw.get("bits", raw.get("w_bit")), raw.get("group_size", raw.get("q_group_size"))
    if isinstance(bits, int) and bits > 0:
        # Symmetric weights have no zero points in memory, whatever the files hold.
        width = _grouped(bits, group if isinstance(group, int) else 0, zeros=raw.get("sym") is not True)
    elif algorithm is not None:
        width = algorithm.bits
    elif raw.get("load_in_8bit"):
        width = 8.0
    main = Quantization(
        method=named.method,
        bits=width,
        compute=compute,
        kv_cache_dtype=kv_dtype,
        has_blocks=bool(raw.get("weight_block_size")),
    )
    apart = [*_exceptions(raw.get("extra_config")), *_exceptions(raw.get("dynamic"))]
    everything = _Group(lambda _: True, width)
    return Scheme(main, kept, (*apart, everything) if apart else ())


def _exceptions(raw: object) -> list[_Group]:
    """Modules of another width: AutoRound's extra_config, GPTQModel's dynamic (`-:` keeps, `+:` changes)."""
    found = []
    for name, own in raw.items() if isinstance(raw, Mapping) else ():
        is_expression = name[:2] in ("-:", "+:")
        bits = own.get("bits") if isinstance(own, Mapping) else None
        group = own.get("group_size", 128) if isinstance(own, Mapping) else 128
        width = None if name.startswith("-:") or bits is None or bits >= 16 else _grouped(int(bits), int(group))
        if bits is None and not name.startswith("-:"):
            continue
        pattern = _Patterns([f"re:{name[2:]}" if is_expression else name])
        found.append(_Group(pattern.is_member, width))
    return found


def _by_layers(layers: Mapping[str, Any], kept: tuple[str, ...], kv_dtype: str | None) -> Scheme:
    """ModelOpt's mixed precision, which names each layer with its algorithm; the most frequent is the main method."""
    algorithms: dict[str, list[str]] = {}
    for name, own in layers.items():
        algorithms.setdefault(str(own.get("quant_algo", "")).upper(), []).append(name)
    groups = []
    for algorithm, names in algorithms.items():
        method = METHODS.get(_ALGORITHMS.get(algorithm, ""))
        groups.append(_Group(_Patterns(names).is_member, method.bits if method else None))
    most = max(algorithms, key=lambda algorithm: len(algorithms[algorithm]))
    main = METHODS.get(_ALGORITHMS.get(most, ""), METHODS["modelopt"])
    quantization = Quantization(method="modelopt", bits=main.bits, compute=main.compute, kv_cache_dtype=kv_dtype)
    return Scheme(quantization, kept, tuple(groups))


def _by_groups(raw: Mapping[str, Any], method: str, kept: tuple[str, ...], kv_dtype: str | None) -> Scheme:
    """Groups of compressed-tensors: the width of their weights, and what the first's are multiplied as.

    A group's targets are modules, or `Linear` for all that no other group has.
    """
    named, rest, main = [], [], None
    for group in (each for each in raw["config_groups"].values() if isinstance(each, Mapping)):
        width, compute = _weights_of(group)
        main = main or (width, compute)
        targets = [str(each) for each in _listed(group.get("targets"))]
        if targets and "Linear" not in targets:
            named.append(_Group(_Patterns(targets).is_member, width))
        else:
            rest.append(_Group(lambda _: True, width))
    width, compute = main or (8.0, "fp8")
    quantization = Quantization(method=method, bits=width, compute=compute, kv_cache_dtype=kv_dtype)
    return Scheme(quantization, kept, (*named, *rest))


def _weights_of(group: Mapping[str, Any]) -> tuple[float, str]:
    """Bits of a weight of a group, and the dtype of its products."""
    weights = group.get("weights") or {}
    bits, size = int(weights.get("num_bits", 8)), int(weights.get("group_size") or 0)
    activations = group.get("input_activations") or {}
    if (bits, weights.get("type")) == (4, "float"):
        # NVFP4: scales of 8 bits. With activations as narrow, products are as well.
        narrow = activations.get("num_bits") == 4
        return METHODS["modelopt_fp4" if size == 16 or not size else "mxfp4"].bits, "fp4" if narrow else "fp16"
    compute = "fp16" if not activations else ("fp8" if weights.get("type") == "float" else "int8")
    return _grouped(bits, size, zeros=not weights.get("symmetric", True)), compute


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
