"""LoRA adapters of a workload: which request asks which, and whether the server has them."""

import asyncio
from collections.abc import Mapping, Sequence

import httpx
import numpy as np

from tokenpeak.errors import LoadError
from tokenpeak.http_answer import HttpAnswerError, ask
from tokenpeak.loadgen.http.server import MODELS, Server, names_of
from tokenpeak.loadgen.prompts import POOL, Prompts
from tokenpeak.paths import shown
from tokenpeak.spec.workload import BASE, PoolingWorkload, Workload

LOAD = "/v1/load_lora_adapter"
LOAD_LIMIT_S = 300.0
"""An adapter's weights are read while its load is answered."""
_ORDER = 7
"""Beside the workload's seed and the run's: prompts and lengths are those of the workload without adapters."""


class NoAdapterError(LoadError):
    """The server has not got an adapter, and would not have it the next time."""


def adapters_of(
    workload: Workload, prompts: Prompts, number: int | None, *, warmup: int = 0, seed: int
) -> tuple[str, ...]:
    """The adapter of each of `number` requests, or of each conversation, drawn by the seeds; empty where none is named.

    Counts are as near to the shares as whole numbers allow, those of the first `warmup` requests apart. Without a
    number a pool is drawn, of which a run takes what it can.
    """
    if isinstance(workload, PoolingWorkload) or not workload.adapters:
        return ()
    random = np.random.default_rng([workload.seed, seed, _ORDER])
    conversations = len(prompts.conversations)
    total = conversations or (POOL if number is None else number)
    first = 0 if conversations else min(warmup, total)
    parts = [_counted(workload.adapters, each) for each in (first, total - first)]
    return tuple(part[place] for part in parts for place in random.permutation(len(part)))


def _counted(shares: Mapping[str, float], number: int) -> list[str]:
    """Each adapter as often as its share of the number, rounded by largest remainder."""
    exact = {name: number * share / sum(shares.values()) for name, share in shares.items()}
    left = number - sum(int(each) for each in exact.values())
    more = sorted(exact, key=lambda name: int(exact[name]) - exact[name])[:left]
    return [name for name, each in exact.items() for _ in range(int(each) + (name in more))]


def require_adapters(server: Server, workloads: Sequence[Workload]) -> None:
    """Load the adapters that have a path and are not served; NoAdapterError where one is not served then."""
    generations = [each for each in workloads if not isinstance(each, PoolingWorkload)]
    wanted = {name for each in generations for name in each.adapters} - {BASE}
    if wanted:
        paths = {name: path for each in generations for name, path in each.adapter_paths.items()}
        asyncio.run(_require(server, wanted, paths))


async def _require(server: Server, wanted: set[str], paths: Mapping[str, str]) -> None:
    try:
        async with server.client() as client:
            served = names_of(await ask(client, MODELS))
            for name in sorted(paths.keys() & wanted - set(served)):
                await _load(client, name, paths[name])
            served = names_of(await ask(client, MODELS))
    except HttpAnswerError as error:
        raise LoadError(f"The server's adapters cannot be asked: {error}.") from error
    if missing := sorted(wanted - set(served)):
        raise NoAdapterError(
            f"The server has no adapter {', '.join(map(shown, missing))}; it serves {', '.join(map(shown, served))}. "
            "Correct the workload's adapters, or give lora_modules among the flags, or adapter_paths in the workload."
        )


async def _load(client: httpx.AsyncClient, name: str, path: str) -> None:
    answer = await ask(client, LOAD, body={"lora_name": name, "lora_path": path}, limit_s=LOAD_LIMIT_S)
    if answer.status == httpx.codes.OK:
        return
    if answer.status == httpx.codes.NOT_FOUND and "adapter" not in answer.text:
        raise NoAdapterError(
            f"The server loads no adapters ({LOAD} answered 404). Write VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' into "
            "tokenpeak_engine_env of the inventory, and enable_lora: true among the flags; or give lora_modules."
        )
    raise NoAdapterError(f"The server did not load the adapter {name!r} from {path!r}: {shown(answer.text, 200)}")
