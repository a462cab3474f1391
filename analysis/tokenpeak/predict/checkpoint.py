"""Weights as a checkpoint's files hold them: exact for every quantization, kept module, tower and adapter.

Layers behind the decoder's last (`+` in a name) predict several tokens ahead; an engine loads them only to speculate.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from tokenpeak.errors import FactsError
from tokenpeak.node.protocol.parts import Checkpoint, Tensors
from tokenpeak.predict.matrices import Role, Stored
from tokenpeak.predict.model import ModelFacts, facts_from_config

_PLAIN = frozenset({"F16", "BF16", "F32", "F64"})
"""Types that an engine turns into its own."""
_TOWER = re.compile(r"(?:^|\.)(?:visual|vision\w*|audio\w*|multi_modal_projector|mm_projector|patch_\w+|sound\w*)\.")
_EXPERTS = re.compile(r"\.experts\.")
_EMBEDDING = re.compile(r"(?:embed_tokens\w*|wte|wpe|word_embeddings|tok_embeddings|backbone\.embeddings)\.")
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|output|embed_out)\.")
_WHOLE = re.compile(r"\.(?:gate|router|kv_a_proj_with_mqa|q_a_proj|indexer\.\w+|f_a_proj|g_a_proj)\.(?:weight|bias)")
"""Matrices that each GPU of a tensor-parallel group has whole."""
_SMALL = re.compile(r"norm|\.bias$|A_log|dt_bias|\.D$|sinks|correction_bias")
_AHEAD = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle)\w*\.|layers\.\+\.")


@lru_cache(maxsize=64)
def facts_of(checkpoint: Checkpoint, name: str) -> ModelFacts | None:
    """The facts of a model that a node has: its shape by its config.json, its weights by its files.

    None where that config.json makes no sense here.
    """
    try:
        facts = facts_from_config(json.loads(checkpoint.config), name, source=f"{checkpoint.model} on the node")
    except (FactsError, ValueError):
        return None
    if not checkpoint.tensors:
        return facts
    return replace(facts, stored=tuple(_stored(checkpoint.tensors, facts)), are_weights_read=True)


def _stored(tensors: Iterable[Tensors], facts: ModelFacts) -> Iterable[Stored]:
    """What is loaded, by role: at the model's own dtype, or as it is in the files."""
    plain: Counter[Role] = Counter()
    narrow: Counter[Role] = Counter()
    for each in tensors:
        role = role_of(each.name)
        if role is None or (role == "head" and not facts.head_parameters):
            continue
        if each.dtype in _PLAIN and "scale" not in each.name:
            plain[role] += each.values
        else:
            narrow[role] += each.bytes
    counted: Counter[Role] = Counter()
    for part in facts.stored:
        counted[part.role] += part.parameters
    for role in plain.keys() | narrow.keys():
        if plain[role]:
            yield Stored(role, plain[role], None)
        if narrow[role]:
            # Packed values hold several parameters: of how many, the shape says.
            parameters = max(counted[role] - plain[role], 1)
            yield Stored(role, parameters, narrow[role] * 8 / parameters)


def role_of(name: str) -> Role | None:
    """What a tensor is of; None of one that the engine does not load."""
    if _AHEAD.search(name):
        return None
    if _TOWER.search(name):
        return "tower"
    if _EMBEDDING.search(name):
        return "embedding"
    if _EXPERTS.search(name):
        return "experts"
    if _HEAD.search(name) and "layers" not in name:
        return "head"
    if _WHOLE.search(name):
        return "replicated"
    return "small" if _SMALL.search(name) else "layer"
