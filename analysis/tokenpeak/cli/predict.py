"""`tokenpeak explain` and `tokenpeak predict`: what trials say of predictions and hardware; what a model will do."""

import sys
from pathlib import Path

import click

from tokenpeak.cli import options
from tokenpeak.cli.engine_log import explained_log
from tokenpeak.console import SafeConsole
from tokenpeak.errors import FactsError, InputError, suggestion
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.plan.baseline import parse_arguments
from tokenpeak.plan.matrix import served_models
from tokenpeak.plan.rules import dropped_because
from tokenpeak.predict.demand import Demand
from tokenpeak.predict.hardware import GIB, gpu_facts, gpu_names
from tokenpeak.predict.memory_plan import plan_memory, unknown_shape
from tokenpeak.predict.model import model_facts
from tokenpeak.predict.prediction import interval_words
from tokenpeak.predict.prediction import predict as predict_run
from tokenpeak.predict.profile_run import activation_peak_bytes, graph_bytes
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts
from tokenpeak.results.hindsight import hindsight_lines
from tokenpeak.search.highest import searched
from tokenpeak.search.history import history_of
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.terminal import echo, echo_lines
from tokenpeak.vllm.command import command_line
from tokenpeak.vllm.flags import DEFAULT_RELEASE


@click.command(short_help="Compare predictions with measurements; say why an engine failed.")
@click.argument("archives", nargs=-1, type=options.ARCHIVE)
@click.option("--log", "log", type=options.ARCHIVE, help="An engine's log, or - for standard input: say why it failed.")
def explain(archives: tuple[Path, ...], log: Path | None) -> None:
    """Compare the predictions of ARCHIVES (folders or .tar.zst) with what was measured.

    Says what binds the fastest config on each kind of hardware, and what to try. With --log instead of archives: the
    class of an engine's failure, its cause and the advice.
    """
    if (log is None) != bool(archives):
        raise InputError("Name archives, or an engine's log by --log FILE (- for standard input), not both.")
    if log is not None:
        echo_lines(explained_log(log))
        return
    stored_archives = find_archives(list(archives))
    for stored in stored_archives:
        if len(stored_archives) > 1:
            echo(stored.path.name)
        _explain(stored)


def _explain(stored: Archive) -> None:
    record = stored.read_sweep()
    spec = parse_spec(record.spec, stored.path / "sweep.json")
    trials = list(stored.judged_trials())
    nodes = {node.node: node for node in record.nodes}
    for plan in record.plans:
        echo(f"{plan.hardware} on {', '.join(plan.nodes)}{' (simulated)' if record.simulated else ''}")
        left = searched(plan, history_of(trials, spec, plan.hardware))
        lines = hindsight_lines(spec, left, nodes[plan.nodes[0]], trials, served_models([plan]))
        echo_lines(f"  {line}" for line in lines or ["no trial gave an objective run"])


@click.command(short_help="Predict the speed of a model on a device.")
@click.argument("model", help="Hub name, or the folder of a config.json.")
@click.option(
    "--gpu", "gpu_name", default="NVIDIA H100 80GB HBM3", show_default=True, help="Device, as nvidia-smi names it."
)
@click.option(
    "--tensor-parallel", default=1, show_default=True, type=click.IntRange(1, 64), help="GPUs that share each layer."
)
@click.option("--release", default=DEFAULT_RELEASE, show_default=True, help="vLLM's release.")
@click.option(
    "--set",
    "flags",
    multiple=True,
    metavar="FLAG=VALUE",
    help="A server flag by vLLM's name, such as kv_cache_dtype=fp8; repeatable.",
)
@click.option("--concurrency", default=32, show_default=True, type=click.IntRange(1), help="Requests in flight.")
@click.option(
    "--input-tokens", default=1000, show_default=True, type=click.IntRange(1), help="Prompt tokens of a request."
)
@click.option(
    "--output-tokens", default=300, show_default=True, type=click.IntRange(1), help="Generated tokens of a request."
)
def predict(
    model: str,
    gpu_name: str,
    tensor_parallel: int,
    release: str,
    flags: tuple[str, ...],
    concurrency: int,
    input_tokens: int,
    output_tokens: int,
) -> None:
    """Predict the speed of MODEL on a device, and what binds it; touches nothing."""
    console = SafeConsole(width=None if sys.stdout.isatty() else 170, highlight=False)
    facts, gpu = model_facts(model), gpu_facts(gpu_name)
    if facts is None:
        raise FactsError(
            f"The model {model!r} is unknown here, and no hub was reached that has it. Name the folder of its "
            "config.json."
        )
    if gpu is None:
        raise FactsError(f"{gpu_name!r} is not in the hardware table. {suggestion(gpu_name, gpu_names())}")
    _, given = parse_arguments([_word(*_flag(text)) for text in flags], release)
    config = Config(
        config_id="asked",
        name="asked",
        model=ModelName(name=facts.name, served_name=facts.name),
        flags={"tensor_parallel_size": tensor_parallel, "max_model_len": input_tokens + output_tokens, **given},
    )
    command_line(config, release)  # it refuses a flag or value that the release does not take
    gpus = tuple(Gpu(index=index, name=gpu_name) for index in range(config.gpus or 1))
    node = NodeFacts.of(MachineFacts(gpus=gpus, engine_version=release), node="asked", source="declared")
    if forbidden := dropped_because(config, node, facts, release):
        console.print(f"cannot run: {forbidden[1]}", markup=False)
    plan = plan_memory(config, node, facts, release)
    if plan is None:
        raise FactsError(unknown_shape(facts, None))
    deployment = plan.deployment
    room = (
        f"KV cache {plan.kv_cache_bytes / GIB:.2f} ({plan.kv_cache_tokens:,} tokens at a context of "
        f"{plan.max_model_len:,})"
        if plan.kv_cache_bytes > 0
        else f"no room for KV cache ({-plan.kv_cache_bytes / GIB:.2f} GiB too much)"
    )
    console.print(
        f"{facts.name}: {facts.parameters / 1e9:.2f} B parameters, {facts.active_parameters / 1e9:.2f} B active, "
        f"{deployment.kv_bytes_per_token_per_gpu:,.0f} B of KV cache a token on each GPU"
    )
    console.print(
        f"memory of each {gpu.name}: weights {deployment.weight_bytes_per_gpu / GIB:.2f} GiB, activations "
        f"{activation_peak_bytes(deployment) / GIB:.1f}, graphs {graph_bytes(deployment) / GIB:.1f}, {room}"
    )
    if forbidden or not plan.fits:
        if not forbidden:
            console.print(f"may not fit: {plan.reason}", markup=False)
        return
    demand = Demand(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        longest_tokens=input_tokens + output_tokens,
        longest_input_tokens=input_tokens,
        requests=None,
        warmup_requests=0,
        duration_s=60.0,
        concurrency=concurrency,
        rate_per_s=None,
    )
    prediction = predict_run(plan, demand)
    speed, limit = prediction.output_tok_per_s or 0.0, prediction.limit_output_tok_per_s or 0.0
    console.print(
        f"{speed:,.0f} output tok/s for {concurrency} in flight, mean TTFT {(prediction.ttft_s or 0) * 1000:,.0f} ms, "
        f"TPOT {(prediction.tpot_s or 0) * 1000:.1f} ms, {interval_words(prediction.uncertainty)} (80%)"
    )
    console.print(
        f"bound by {(prediction.binding or '?').replace('_', ' ')}; {speed / limit:.0%} of the hardware's "
        f"{limit:,.0f} tok/s"
    )


def _word(name: str, value: str) -> str:
    """A flag as an engine's command line has it."""
    return {"true": f"--{name}", "false": f"--no-{name}"}.get(value, f"--{name}={value}")


def _flag(text: str) -> tuple[str, str]:
    """A flag and its value; UsageError for one without."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--set {text}: write FLAG=VALUE, such as kv_cache_dtype=fp8 or enforce_eager=true.")
    return name, value
