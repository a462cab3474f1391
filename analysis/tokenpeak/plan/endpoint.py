"""Plan of an endpoint: one config, of which only the model and the address are known, on one node, the address."""

from tokenpeak.records import Config, ModelName, NodeFacts, Plan, PlannedConfig, config_hash
from tokenpeak.spec.endpoint import EndpointSpec

AS_SERVED = "as served"


def endpoint_config(endpoint: EndpointSpec) -> Config:
    """What is served there, as far as it is known; its id is a hash of the model's name and the address."""
    content = {"endpoint": endpoint.url, "model": endpoint.model}
    return Config(
        config_id=config_hash(content),
        name=AS_SERVED,
        model=ModelName(name=endpoint.model, served_name=endpoint.model),
        endpoint=endpoint.url,
    )


def endpoint_plan(endpoint: EndpointSpec, node: NodeFacts) -> Plan:
    """The one config there is to measure; nothing is predicted, since its flags are not known."""
    config = endpoint_config(endpoint)
    planned = PlannedConfig(config=config, config_class=config.config_id[:8])
    gpus = len(node.gpus) or 1
    return Plan(hardware=node.hardware, gpus=gpus, nodes=(node.node,), theoretical=1, feasible=(planned,))
