"""The config.json of a model from the hub, where it can be reached; kept on this machine, so that it is asked once.

`HF_ENDPOINT` names another hub, `HF_TOKEN` opens gated models, `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` keeps quiet.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import httpx

from tokenpeak.atomic import write_atomically
from tokenpeak.deletion import delete
from tokenpeak.errors import FactsError
from tokenpeak.predict.model import BESIDE, ModelFacts, kept_config, model_facts

TIMEOUT_S = 4.0

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def facts_from_hub(name: str, env: Mapping[str, str] = os.environ) -> ModelFacts | None:
    """The facts of a model that only the hub knows; None when it is offline, not to be asked, or not understood."""
    if not _HUB_NAME.fullmatch(name) or _is_set(env, "HF_HUB_OFFLINE") or _is_set(env, "TRANSFORMERS_OFFLINE"):
        return None
    folder = f"{env.get('HF_ENDPOINT') or 'https://huggingface.co'}/{name}/resolve/main"
    headers = {"Authorization": f"Bearer {token}"} if (token := env.get("HF_TOKEN")) else {}
    kept = kept_config(name)
    try:
        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=True, headers=headers) as client:
            found = client.get(f"{folder}/config.json")
            if found.status_code != httpx.codes.OK:
                return None
            beside = client.get(f"{folder}/{BESIDE}")
            if beside.status_code == httpx.codes.OK:
                _keep(kept.with_name(BESIDE), beside.json())
            _keep(kept, found.json())
    except (httpx.HTTPError, ValueError):
        return None
    try:
        return model_facts(name)
    except FactsError:
        # An architecture that is not read here; nobody can correct the hub's file.
        for path in (kept, kept.with_name(BESIDE)):
            delete(path)
        return None


def _is_set(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").casefold() in ("1", "true", "yes", "on")


def _keep(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document))
