"""Nodes whose inventory gives them a model."""

from tokenpeak.records import ModelName, NodeFacts

LLAMA = ModelName(name="meta-llama/Llama-3.1-8B-Instruct", served_name="meta-llama/Llama-3.1-8B-Instruct")


def named(name: str) -> ModelName:
    """A model that is served by its own name."""
    return ModelName(name=name, served_name=name)


def serving(model: ModelName, *nodes: NodeFacts) -> list[NodeFacts]:
    """The nodes, each with this model."""
    return [node.model_copy(update={"model": model}) for node in nodes]
