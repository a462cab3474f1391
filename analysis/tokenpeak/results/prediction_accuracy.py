"""Prediction accuracy of a sweep: errors, the winner's share of the hardware's limit, and advice.

Pure: a plan, the facts of a node, and trials in; sentences out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpeak.predict.correction import METRICS, MetricError, errors, learn, observed
from tokenpeak.predict.demand import Demand, objective_demand, objective_run
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.predict.prediction import binding, decode_bytes, hardware_limit_tok_per_s, steady_state, tokens_per_step
from tokenpeak.records import NodeFacts, Plan, RunRecord, TrialRecord
from tokenpeak.results.run_advice import Advice, diagnose
from tokenpeak.spec.sweep import SweepSpec


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


SHOWN = 3
"""How many corrected predictions and pieces of advice are shown."""


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """What the trials of one kind of hardware teach; empty or None where they show nothing."""

    errors: tuple[MetricError, ...]
    share: Utilization | None
    """Of the trial with the most output throughput in the objective run."""
    best: TrialRecord | None
    advice: tuple[Advice, ...]
    """From that trial's objective run."""


def _speed(run: RunRecord | None) -> float:
    return (run.summary.output_tok_per_s or 0.0) if run else 0.0


def hindsight(
    spec: SweepSpec,
    node: NodeFacts,
    trials: Sequence[TrialRecord],
    models: Mapping[str, ModelFacts | None],
) -> Hindsight:
    """What the trials, all on nodes like `node`, say of their predictions."""
    good = [trial for trial in trials if trial.status == "ok"]
    seen = [found for trial in good if (found := observed(trial, spec))]
    runs = [(trial, run) for trial in good if (run := objective_run(trial.runs, spec))]
    best, run = max(runs, key=lambda pair: _speed(pair[1]), default=(None, None))
    share: Utilization | None = None
    advice: tuple[Advice, ...] = ()
    if best is not None and run is not None:
        memory = plan_memory(best.config, node, models.get(best.config.model.name), best.config.engine_version)
        if memory is not None and memory.fits and _speed(run):
            share = utilization(memory, objective_demand(spec), _speed(run), run.summary.tpot_s.mean)
        advice = diagnose(best.config, run, best.series, memory)
    return Hindsight(
        errors=errors(seen),
        share=share,
        best=best,
        advice=advice,
    )


def hindsight_lines(
    spec: SweepSpec,
    plan: Plan,
    node: NodeFacts,
    trials: Sequence[TrialRecord],
    models: Mapping[str, ModelFacts | None],
) -> list[str]:
    """Hindsight in sentences; none when no trial gave an objective run."""
    found = hindsight(spec, node, [trial for trial in trials if trial.hardware == plan.hardware], models)
    lines = [
        f"prediction of {error.metric}: measured ÷ predicted {error.median_ratio:.2f} in the median of {error.n}, "
        f"off by {error.mean_absolute_error:.0%}, {error.within_interval:.0%} inside the stated 80% interval"
        for error in found.errors
    ]
    if found.best is not None and found.share is not None:
        lines.append(f"fastest ({found.best.config.name}): {found.share.sentence()}")
    lines += _untried(spec, plan, trials)
    lines += [f"advice: {advice.text} ({advice.evidence})" for advice in found.advice[:SHOWN]]
    return lines


def _untried(spec: SweepSpec, plan: Plan, trials: Sequence[TrialRecord]) -> list[str]:
    """The configs not tried that the corrected predictions rate highest."""
    same = [trial for trial in trials if trial.hardware == plan.hardware]
    tried = {trial.config.config_id for trial in same}
    learned = learn([found for trial in same if (found := observed(trial, spec))])
    if METRICS[0] not in learned.mean:
        return []
    left = [
        (learned.apply(planned.config, planned.prediction), planned.config.name)
        for planned in plan.feasible
        if planned.prediction is not None and planned.config.config_id not in tried
    ]
    left.sort(key=lambda pair: -(pair[0].output_tok_per_s or 0.0))
    return [
        f"not tried: {name}, predicted {predicted.output_tok_per_s or 0:,.0f} tok/s ±{predicted.uncertainty or 0:.0%}"
        for predicted, name in left[:SHOWN]
    ]
