"""Model shape: parameters by formula, and the bytes that weights and KV cache take.

Facts come from a `config.json` (a path, or the cache of the hub on this machine) or from data/models.json, which holds
the most served open models, each with its source. A model that none of these knows has no facts; it can still be swept,
without prediction.
"""

import asyncio
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import FactsError
from tokenpeak.files import delete, write_atomically
from tokenpeak.paths import data_dir, inside, state_dir
from tokenpeak.predict.config_json import read_config
from tokenpeak.predict.layers import LayerCache, LayerState
from tokenpeak.predict.matrices import Experts, Mla, Stored
from tokenpeak.predict.quantization import Quantization, scheme_of

TABLE = Path(__file__).parent / "data" / "models.json"

LARGEST_CONFIG_BYTES = 4 * 1024**2
"""Of a config.json: those of the largest models, which list every layer, have some hundred kilobytes."""

BESIDE = "hf_quant_config.json"
"""ModelOpt's own file on a checkpoint's quantization."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_TIMEOUT_S, HUB_ANSWER_LIMIT_S = 4.0, 10.0

DTYPE_BYTES = {"float32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of a value; vLLM's names of the fp8 kinds (`fp8_e5m2` …) all start with `fp8`."""


def dtype_bytes(dtype: str) -> float:
    """Bytes of one value of `dtype`; raises FactsError for a word that vLLM does not know."""
    size = DTYPE_BYTES.get("fp8" if dtype.startswith("fp8") else dtype)
    if size is None:
        raise FactsError(f"dtype {dtype!r} is unknown. Use one of {', '.join(DTYPE_BYTES)} or auto.")
    return size


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A decoder-only transformer. Counts are of parameters; sizes are in values unless the name says bytes."""

    name: str
    model_type: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_context: int
    dtype: str
    gated_mlp: bool
    linear_parameters: int
    """In the matrices of the layers: what quantization shrinks."""
    embedding_parameters: int
    """Looked up, never multiplied; also the output matrix when tied."""
    head_parameters: int
    """The output matrix, 0 when it is the embedding."""
    other_parameters: int
    """Norms and biases."""
    active_linear_parameters: int
    """Matrices that one token is multiplied by."""
    stored: tuple[Stored, ...]
    """All parameters, by role and width."""
    kept: tuple[LayerCache, ...]
    """What layers keep of a sequence, by kind."""
    is_counted: bool = True
    """False: of a family whose layers are not known here, so that bytes and rates are not."""
    are_weights_read: bool = False
    """Their bytes are those of a checkpoint's files, rather than of its config.json."""
    tower_parameters: int = 0
    """Beside the decoder, for images and sound."""
    image_token_values: int = 0
    """Values of one embedding of an image; 0 where images are of one size, or there are none."""
    experts: Experts | None = None
    mla: Mla | None = None
    quantization: Quantization | None = None
    """As the checkpoint says; None for a 16- or 32-bit checkpoint."""
    source: str = ""

    @cached_property
    def parameters(self) -> int:
        """All parameters."""
        return sum(each.parameters for each in self.stored)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token of text meets; all of the decoder unless it is a mixture of experts."""
        return self.parameters - self.tower_parameters - self.linear_parameters + self.active_linear_parameters

    @cached_property
    def output_matrix_parameters(self) -> int:
        """Read for each step that samples a token, tied or not."""
        return self.hidden * self.vocabulary

    @cached_property
    def sliding_window(self) -> int | None:
        """Tokens that layers with a window or chunk attend to; None without such layers."""
        return next((each.reach for each in self.kept if each.reach), None)

    @cached_property
    def windowed_layers(self) -> int:
        """Layers with a window or chunk."""
        return sum(each.layers for each in self.kept if each.reach)

    @cached_property
    def attention_layers(self) -> int:
        """Layers that attend to tokens, rather than to a state."""
        return sum(each.layers for each in self.kept if each.state is None)

    def weight_bytes(self, dtype: str = "auto", quantization: Quantization | None = None) -> float:
        """Bytes of all weights in memory, as the checkpoint stores them, the rest at `dtype`.

        `quantization` narrows the matrices of the layers of a checkpoint that is not quantized.
        """
        return sum(size for _, size in self.stored_bytes(dtype, quantization))

    def stored_bytes(
        self, dtype: str = "auto", quantization: Quantization | None = None
    ) -> tuple[tuple[Stored, float], ...]:
        """Bytes of each part of the weights."""
        plain = dtype_bytes(self.dtype if dtype == "auto" else dtype)
        added = quantization.bits if quantization is not None and quantization is not self.quantization else None

        def width(each: Stored) -> float:
            if added is not None and each.role in ("layer", "experts"):
                return added / 8
            return plain if each.bits is None else each.bits / 8

        return tuple((each, each.parameters * width(each)) for each in self.stored)

    def kv_bytes_per_token(self, dtype: str = "auto", tensor_parallel: int = 1) -> float:
        """Bytes of KV cache that one token takes in all layers that keep keys and values, on one GPU.

        KV heads are divided among `tensor_parallel` GPUs and repeated when there are fewer; MLA's vector is on each.
        """
        width = dtype_bytes(self.kv_dtype(dtype))
        return sum(each.layers * kept_bytes(each, width, tensor_parallel) for each in self.kept)

    def kv_dtype(self, kv_cache_dtype: str = "auto", dtype: str = "auto") -> str:
        """The KV cache's dtype: its flag, else what the checkpoint asks for, else that of the activations."""
        if kv_cache_dtype != "auto":
            return kv_cache_dtype
        if self.quantization and self.quantization.kv_cache_dtype:
            return self.quantization.kv_cache_dtype
        return self.dtype if dtype == "auto" else dtype

    def kv_bytes_of_sequence(self, tokens: int, dtype: str = "auto", tensor_parallel: int = 1) -> float:
        """Bytes of KV cache and states of one sequence; layers with a window keep no more than the window."""
        width, plain = dtype_bytes(self.kv_dtype(dtype)), dtype_bytes(self.dtype)
        return sum(
            each.layers
            * (
                state_bytes(each.state, plain, tensor_parallel)
                if each.state is not None
                else kept_bytes(each, width, tensor_parallel) * min(tokens, each.reach or tokens)
            )
            for each in self.kept
        )

    def attention_flops(self, prefill_pairs: float, decode_context_tokens: float) -> float:
        """Operations of the products inside attention, in all layers: a score and a weighted value for each pair.

        MLA expands its vectors for a prompt, and multiplies with the compressed ones for each token of an answer.
        """
        prefill = decode = 2 * self.head_size
        if self.mla:
            prefill = self.mla.nope_head_size + self.mla.rope_head_size + self.mla.value_head_size
            decode = 2 * self.mla.kv_lora_rank + self.mla.rope_head_size
        return 2.0 * self.attention_layers * self.heads * (prefill * prefill_pairs + decode * decode_context_tokens)

    @cached_property
    def expert_parameters(self) -> int:
        """Of all experts that tokens are routed to, without shared ones and routers; 0 without experts."""
        return sum(each.parameters for each in self.stored if each.role == "experts")

    @cached_property
    def active_expert_parameters(self) -> int:
        """Of the experts that one token is routed to."""
        return self.expert_parameters - (self.linear_parameters - self.active_linear_parameters)

    def experts_read(self, tokens: float) -> float:
        """Share of the experts that `tokens` tokens pick together, if each picks its own at random."""
        if not self.experts:
            return 0.0
        return 1.0 - math.pow(1.0 - self.experts.active / self.experts.total, tokens)


def are_other_models(first: str, second: str) -> bool:
    """Whether two names are of models of other shapes; checkpoints of one model in other formats are not.

    False too where the shape of one is not known.
    """
    shapes = {_shape(name) for name in {first, second}}
    return None not in shapes and len(shapes) > 1


@cache
def _shape(name: str) -> tuple[int, ...] | None:
    try:
        facts = model_facts(name)
    except FactsError:
        return None
    return (facts.layers, facts.hidden, facts.heads, facts.vocabulary) if facts is not None else None


def kept_bytes(kept: LayerCache, width: float, tensor_parallel: int) -> float:
    """Bytes of keys and values that one layer keeps of a token on one GPU; 0 of a state."""
    shards = max(1, kept.heads // tensor_parallel) if kept.heads else 1
    return shards * kept.values * width + kept.index_bytes


def state_bytes(state: LayerState, width: float, tensor_parallel: int) -> float:
    """Bytes of the state that one layer keeps of a sequence on one GPU; `width` is that of the model's values."""
    recurrent = dtype_bytes(state.dtype) if state.dtype else width
    return (state.conv * width + state.recurrent * recurrent) / tensor_parallel


def model_facts(name_or_path: str) -> ModelFacts | None:
    """The model called `name_or_path`, or None when nothing here knows it.

    A folder's or file's config.json is read first, then that of a model made on this machine (data_dir()/models),
    then the built-in table, then what `facts_from_hub` kept, then the hub's own cache. A GGUF file is not read.
    Raises FactsError when a config.json is found and makes no sense; one of the hub's cache, which nobody can correct,
    is then no facts.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == ".gguf":
        return None
    for candidate in (path, path / "config.json", data_dir() / "models" / name_or_path / "config.json"):
        if candidate.is_file():
            return facts_from_file(candidate, name_or_path)
    if built_in := _table().get(_short(name_or_path)):
        return built_in
    if kept_config(name_or_path).is_file():
        return facts_from_file(kept_config(name_or_path), name_or_path)
    cached = sorted(_hub_cache().glob(f"models--{name_or_path.replace('/', '--')}/snapshots/*/config.json"))
    try:
        return facts_from_file(cached[-1], name_or_path) if cached else None
    except FactsError:
        return None


def kept_config(name: str) -> Path:
    """Where the config.json of a model asked of the hub is kept."""
    return inside(state_dir() / "models", name.replace("/", "--"), error=FactsError) / "config.json"


def model_names() -> tuple[str, ...]:
    """The models whose facts are built in."""
    return tuple(facts.name for facts in _table().values())


def facts_from_file(path: Path, name: str) -> ModelFacts:
    """The facts of a config.json on this machine, and of what ModelOpt says beside it."""
    config = _read_config(path)
    beside = path.with_name(BESIDE)
    if beside.is_file() and isinstance(config, dict) and "quantization_config" not in config:
        quantization = _read_config(beside)
        if not isinstance(quantization, dict) or not isinstance(quantization.get("quantization"), dict):
            raise FactsError(f"{beside} has no object `quantization`. Copy it anew from the checkpoint.")
        config["quantization_config"] = {"quant_method": "modelopt", **quantization["quantization"]}
    return facts_from_config(config, name, source=str(path))


def _read_config(path: Path) -> object:
    data = bounded.read_bytes(path, LARGEST_CONFIG_BYTES, error=FactsError)
    return bounded.parse_json(data, path, nan="null", most=LARGEST_CONFIG_BYTES, error=FactsError)


def _short(name: str) -> str:
    # Meta took its own name out of those of its models.
    return name.rstrip("/").rsplit("/", 1)[-1].casefold().removeprefix("meta-")


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME")
    return Path(os.environ.get("HF_HUB_CACHE") or (Path(home) if home else Path.home() / ".cache/huggingface") / "hub")


@cache
def _table() -> Mapping[str, ModelFacts]:
    raw = json.loads(TABLE.read_text())
    return {_short(name): facts_from_config(entry["config"], name, entry["source"]) for name, entry in raw.items()}


def facts_from_config(config: object, name: str, source: str = "") -> ModelFacts:
    """The facts that a parsed config.json holds; raises FactsError naming the key that is missing or makes no sense."""
    if not isinstance(config, Mapping):
        raise FactsError(f"config.json of {name} must be a JSON object, not {type(config).__name__}.")
    try:
        scheme = scheme_of(config)
        facts: dict[str, Any] = read_config(config, name, scheme)
        return ModelFacts(name=name, source=source, quantization=None if scheme is None else scheme.method, **facts)
    except (TypeError, ValueError, AttributeError) as error:
        raise FactsError(f"config.json of {name} has a key of another form ({error}). Correct that file.") from error


def facts_from_hub(name: str, env: Mapping[str, str] = os.environ) -> ModelFacts | None:
    """The facts of a model that only the hub knows; None when it is offline, not to be asked, or not understood.

    Its config.json is kept on this machine, so that it is asked once. `HF_ENDPOINT` names another hub, `HF_TOKEN` opens
    gated models, `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` keeps quiet.
    """
    # Imported here: a simulated engine, which reads facts too, is to start soon.
    from httpx import InvalidURL

    from tokenpeak.http_answer import HttpAnswerError

    if not _HUB_NAME.fullmatch(name) or _is_set(env, "HF_HUB_OFFLINE") or _is_set(env, "TRANSFORMERS_OFFLINE"):
        return None
    folder = f"{env.get('HF_ENDPOINT') or 'https://huggingface.co'}/{name}/resolve/main"
    headers = {"Authorization": f"Bearer {token}"} if (token := env.get("HF_TOKEN")) else {}
    path = kept_config(name)
    try:
        config, beside = asyncio.run(_from_hub((f"{folder}/config.json", f"{folder}/{BESIDE}"), headers))
    except (HttpAnswerError, FactsError, ValueError, InvalidURL):
        return None
    if config is None:
        return None
    if beside is not None:
        _keep(path.with_name(BESIDE), beside)
    _keep(path, config)
    try:
        return model_facts(name)
    except FactsError:
        # An architecture that is not read here; nobody can correct the hub's file.
        delete(path)
        delete(path.with_name(BESIDE))
        return None


async def _from_hub(urls: Sequence[str], headers: Mapping[str, str]) -> list[object]:
    """The JSON at each address; None for one that the hub does not have, and for all when it lacks the first."""
    import httpx

    from tokenpeak.http_answer import ask

    documents: list[object] = [None] * len(urls)
    async with httpx.AsyncClient(timeout=HUB_TIMEOUT_S, follow_redirects=True, headers=headers) as client:
        for number, url in enumerate(urls):
            answer = await ask(client, url, limit_bytes=LARGEST_CONFIG_BYTES, limit_s=HUB_ANSWER_LIMIT_S)
            if answer.status == httpx.codes.OK:
                documents[number] = bounded.parse_json(
                    answer.content, url, nan="null", most=LARGEST_CONFIG_BYTES, error=FactsError
                )
            elif number == 0:
                break
    return documents


def _is_set(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").casefold() in ("1", "true", "yes", "on")


def _keep(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document))
