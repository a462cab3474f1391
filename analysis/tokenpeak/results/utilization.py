"""Utilization of the hardware by a measured run: its share of memory bandwidth, of arithmetic, and of the limit."""

from dataclasses import dataclass

from tokenpeak.predict.demand import Demand
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.predict.prediction import binding, decode_bytes, hardware_limit_tok_per_s, steady_state, tokens_per_step


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """Shares from 0 to 1 of what the data sheets state; a share above 1 means that the facts are wrong."""

    of_limit: float
    """Measured output tokens per second ÷ the most that ideal hardware would give for this run."""
    memory_bandwidth: float
    """Bytes of weights and KV cache that the decode steps must have read, per second ÷ bandwidth."""
    compute: float
    """Operations of all tokens, prompts too, per second ÷ dense rate (MFU)."""
    binding: str

    def sentence(self) -> str:
        """The shares in words."""
        return (
            f"{self.of_limit:.0%} of the hardware's limit (memory bandwidth {self.memory_bandwidth:.0%}, "
            f"compute {self.compute:.0%}); bound by {self.binding.replace('_', ' ')}"
        )


def utilization(
    memory: MemoryPlan, demand: Demand, output_tok_per_s: float, tpot_s: float | None = None
) -> Utilization:
    """The shares of a run that gave `output_tok_per_s`, with a token of a sequence every `tpot_s` if that was measured.

    By Little's law the two give how many sequences were being decoded in the mean. The engine's own gauge of what runs
    is read too seldom for that in a short run, and counts prompts.
    """
    deployment = memory.deployment
    gpu, model = deployment.gpu, deployment.model
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    state = steady_state(memory, demand)
    decoded = output_tok_per_s * tpot_s if tpot_s else state.running
    batch = max(1.0, decoded / memory.data_parallel)
    steps_per_s = output_tok_per_s / memory.data_parallel / batch / tokens_per_step(memory)
    hits = demand.prefix_hit_rate if memory.prefix_caching else 0.0
    prompts = demand.input_tokens * (1 - hits) / max(1.0, demand.output_tokens)
    flops_per_token = 2 * (model.active_linear_parameters * (1 + prompts) + model.output_matrix_parameters)
    return Utilization(
        of_limit=output_tok_per_s / hardware_limit_tok_per_s(memory, demand),
        memory_bandwidth=steps_per_s * decode_bytes(deployment, demand, batch) / (gpu.memory_bytes_per_s * devices),
        compute=output_tok_per_s / memory.data_parallel * flops_per_token / (deployment.compute_flops * devices),
        binding=binding(memory, demand, state),
    )
