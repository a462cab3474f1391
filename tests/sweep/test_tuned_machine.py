"""The inventory of one machine that is tuned: what it says of a model by its served name, and of a CPU engine."""

from typing import Any

import yaml

from tokenpeak.node.protocol.answers import SurveyAnswer
from tokenpeak.node.protocol.parts import FoundEngine, FoundServer
from tokenpeak.sweep.inventory.first_inventory import first_inventory
from tokenpeak.sweep.inventory.survey import Surveyed

FOLDER = "/models/small"


def shared(model: str | None, env: dict[str, str]) -> dict[str, Any]:
    """The variables that are written of a machine without GPUs that serves FOLDER as `mine`."""
    engine = FoundEngine(command=("/opt/vllm/bin/vllm", "serve"), version="0.32.0")
    server = FoundServer(manager="process", argv=("vllm", "serve", FOLDER), env=env, model=FOLDER, engine=engine)
    answer = SurveyAnswer(
        url="http://127.0.0.1:8000", servers=(server,), engines=(engine,), served_name="mine", is_root=True
    )
    surveyed = Surveyed(name="localhost", address="localhost", user=None, answer=answer)
    _, text = first_inventory([surveyed], "Written by …", model=model)
    return dict(yaml.safe_load(text))


def test_model_by_its_served_name() -> None:
    """A model that is named as production serves it is production's: its folder, not a name on the hub."""
    variables = shared("mine", {})

    assert variables["tokenpeak_model_path"] == FOLDER
    assert variables["tokenpeak_model"] == {"name": "small", "served_name": "mine"}


def test_another_model_is_of_the_hub() -> None:
    """Any other name is the hub's."""
    assert "tokenpeak_model_path" not in shared("Qwen/Qwen3-8B", {})


def test_cpu_engine_has_room() -> None:
    """Without GPUs the engine's KV cache has a size, production's where it has one: vLLM would take all memory."""
    assert shared(None, {})["tokenpeak_engine_env"]["VLLM_CPU_KVCACHE_SPACE"] == "4"
    assert shared(None, {"VLLM_CPU_KVCACHE_SPACE": "2"})["tokenpeak_engine_env"]["VLLM_CPU_KVCACHE_SPACE"] == "2"
