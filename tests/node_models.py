"""Nodes whose inventory gives them a model, and known models on known boards."""

from typing import Any

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GpuFacts, gpu_facts
from tokenpeak.predict.model import ModelFacts, model_facts
from tokenpeak.records import ModelName, NodeFacts

LLAMA = ModelName(name="meta-llama/Llama-3.1-8B-Instruct", served_name="meta-llama/Llama-3.1-8B-Instruct")


def named(name: str) -> ModelName:
    """A model that is served by its own name."""
    return ModelName(name=name, served_name=name)


def serving(model: ModelName, *nodes: NodeFacts) -> list[NodeFacts]:
    """The nodes, each with this model."""
    return [node.model_copy(update={"model": model}) for node in nodes]


def known_model(name: str) -> ModelFacts:
    """The facts of a model of the table."""
    facts = model_facts(name)
    assert facts is not None, name
    return facts


def known_board(name: str) -> GpuFacts:
    """The facts of a board of the table."""
    facts = gpu_facts(name)
    assert facts is not None, name
    return facts


def deployment(model: str, gpu: str, **options: Any) -> Deployment:
    """A known model on known boards."""
    return Deployment(model=known_model(model), gpu=known_board(gpu), **options)
