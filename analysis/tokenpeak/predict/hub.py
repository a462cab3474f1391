"""The config.json of a model from the hub, where it can be reached; kept on this machine, so that it is asked once.

`HF_ENDPOINT` names another hub, `HF_TOKEN` opens gated models, `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` keeps quiet.
"""

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from tokenpeak import bounded
from tokenpeak.atomic import write_atomically
from tokenpeak.deletion import delete
from tokenpeak.errors import FactsError
from tokenpeak.http_answer import HttpAnswerError, ask
from tokenpeak.predict.model import BESIDE, LARGEST_CONFIG_BYTES, ModelFacts, kept_config, model_facts

TIMEOUT_S = 4.0
ANSWER_LIMIT_S = 10.0

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def facts_from_hub(name: str, env: Mapping[str, str] = os.environ) -> ModelFacts | None:
    """The facts of a model that only the hub knows; None when it is offline, not to be asked, or not understood."""
    if not _HUB_NAME.fullmatch(name) or _is_set(env, "HF_HUB_OFFLINE") or _is_set(env, "TRANSFORMERS_OFFLINE"):
        return None
    folder = f"{env.get('HF_ENDPOINT') or 'https://huggingface.co'}/{name}/resolve/main"
    headers = {"Authorization": f"Bearer {token}"} if (token := env.get("HF_TOKEN")) else {}
    kept = kept_config(name)
    try:
        config, beside = asyncio.run(_asked((f"{folder}/config.json", f"{folder}/{BESIDE}"), headers))
    except (HttpAnswerError, FactsError, ValueError, httpx.InvalidURL):
        return None
    if config is None:
        return None
    if beside is not None:
        _keep(kept.with_name(BESIDE), beside)
    _keep(kept, config)
    try:
        return model_facts(name)
    except FactsError:
        # An architecture that is not read here; nobody can correct the hub's file.
        for path in (kept, kept.with_name(BESIDE)):
            delete(path)
        return None


async def _asked(urls: Sequence[str], headers: Mapping[str, str]) -> list[object]:
    """The JSON at each address; None for one that the hub does not have, and for all when it lacks the first."""
    documents: list[object] = [None] * len(urls)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True, headers=headers) as client:
        for number, url in enumerate(urls):
            answer = await ask(client, url, limit_bytes=LARGEST_CONFIG_BYTES, limit_s=ANSWER_LIMIT_S)
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
