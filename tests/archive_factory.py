"""Synthetic archives of any size, through the records' models and the store's own writer.

The numbers are made up but hang together: throughput grows with the batch and saturates, latency with the load,
launches of one config differ by noise, some configs run out of memory, requests sum up to their run.

    make_archive(tmp_path / "a")                                    16 trials, 4 runs each
    make_archive(path, axes=MANY_AXES, replicates=2, requests=250)  1,000 trials, 1,000,000 requests
"""

import hashlib
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from tokenpeak.loadgen.prompts import lengths
from tokenpeak.records import (
    ClientHealth,
    Config,
    Distribution,
    Dropped,
    EndRecord,
    Energy,
    EngineCounters,
    Failure,
    Gpu,
    ModelName,
    NodeFacts,
    Phase,
    Plan,
    PlannedConfig,
    Prediction,
    Production,
    Provenance,
    Reason,
    Restoration,
    RunRecord,
    RunSummary,
    Series,
    StartupFacts,
    SweepRecord,
    TrialRecord,
    Verdict,
)
from tokenpeak.spec.load import ClosedLoad, LoadLevel
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.spec.workload import SyntheticWorkload
from tokenpeak.store.archive import Archive

AXES: dict[str, list[object]] = {
    "max_num_seqs": [8, 64],
    "max_num_batched_tokens": [512, 2048],
    "enforce_eager": [True, False],
}
MANY_AXES: dict[str, list[object]] = {
    "max_num_seqs": [16, 32, 64, 128, 256],
    "max_num_batched_tokens": [512, 1024, 2048, 4096, 8192],
    "gpu_memory_utilization": [0.8, 0.85, 0.9, 0.92, 0.95],
    "enforce_eager": [True, False],
}
GPUS = ("NVIDIA A100-SXM4-80GB", "NVIDIA L4")
MODEL = ModelName(name="meta-llama/Llama-3.1-8B-Instruct", served_name="llama-8b")
START = datetime(2026, 11, 20, 22, 0, tzinfo=UTC)
INPUT_TOKENS, OUTPUT_TOKENS = 128, 32
SLO = {"ttft_p95_ms": 500.0, "tpot_p95_ms": 50.0}
PROVENANCE = Provenance(
    tokenpeak_version="0.1.0", git_revision="0" * 40, python="3.11.9", packages={"polars": "2.1.0", "pydantic": "2.14"}
)


def make_archive(
    path: Path,
    *,
    axes: Mapping[str, Sequence[object]] = AXES,
    replicates: int = 1,
    gpus: Sequence[str] = GPUS,
    gpus_a_node: int = 1,
    requests: int = 40,
    noise: float = 0.01,
    simulated: bool = True,
    started_at: datetime = START,
    study: str | None = None,
    seed: int = 0,
    end: bool = True,
    seconds: int = 60,
    workload: Mapping[str, object] = {},
    slo: Mapping[str, float] = SLO,
) -> Archive:
    """An archive at `path` with every config on each kind of hardware, `requests` per run and four runs a trial.

    `noise` is the standard deviation of log throughput between launches; `seconds` the length of each series.
    `workload` has what its lengths are otherwise.
    """
    spec = sweep_spec(axes, workload, slo)
    generator = np.random.default_rng(seed)
    nodes = [
        node_facts(f"node-{index + 1}", gpu, simulated=simulated, count=gpus_a_node) for index, gpu in enumerate(gpus)
    ]
    plans = [plan_of(spec, node) for node in nodes]
    sweep_id = path.name
    archive = Archive(path)
    archive.write_sweep(
        SweepRecord(
            sweep_id=sweep_id,
            name=spec.name,
            inventory="synthetic",
            started_at=started_at,
            simulated=simulated,
            study=study,
            spec=spec.model_dump(mode="json"),
            nodes=tuple(nodes),
            plans=tuple(plans),
            provenance=PROVENANCE,
        )
    )
    scratch = path / ".requests.parquet"
    number = 0
    launches = [
        (node, planned, replicate)
        for replicate in range(replicates)
        for node, plan in zip(nodes, plans, strict=True)
        for planned in plan.feasible
    ]
    for node, planned, replicate in launches:
        number += 1
        trial, frame = trial_record(
            spec,
            sweep_id=sweep_id,
            number=number,
            node=node,
            planned=planned,
            replicate=replicate,
            requests=requests,
            noise=noise,
            started_at=started_at + timedelta(seconds=90 * number),
            seconds=seconds,
            generator=generator,
        )
        if frame is not None:
            frame.write_parquet(scratch, compression="zstd", compression_level=1)
        archive.write_trial(trial, scratch if frame is not None else None, engine_log(trial))
    scratch.unlink(missing_ok=True)
    if end:
        archive.write_end(
            EndRecord(
                sweep_id=sweep_id,
                status="completed",
                ended_at=started_at + timedelta(seconds=90 * (number + 1)),
                trials=number,
                production_downtime_s={node.node: 80.0 * number / len(nodes) for node in nodes},
            )
        )
    return archive


def sweep_spec(
    axes: Mapping[str, Sequence[object]] = AXES,
    workload: Mapping[str, object] = {},
    slo: Mapping[str, float] = SLO,
) -> SweepSpec:
    """A spec over these axes with a closed run and three rates of one workload."""
    raw = {
        "axes": {axis: list(values) for axis, values in axes.items()},
        "fixed": {"name": "fixed", "flags": {"dtype": "bfloat16", "max_model_len": 2048}},
        "workloads": [
            {
                "workload": {
                    "kind": "synthetic",
                    "name": "short",
                    "input_tokens": INPUT_TOKENS,
                    "output_tokens": OUTPUT_TOKENS,
                    **workload,
                },
                "levels": [
                    {"concurrency": 32, "requests": 96},
                    {"rate_per_s": 4, "requests": 24},
                    {"rate_per_s": 8, "requests": 48},
                    {"rate_per_s": 16, "requests": 96},
                ],
            }
        ],
        "slo": dict(slo),
        "energy": {"price_per_node_hour": 2.5},
    }
    return parse_spec(raw, Path("synthetic.yml"))


def node_facts(name: str, gpu: str, *, simulated: bool = True, count: int = 1) -> NodeFacts:
    """A probed node with `count` GPUs of this name."""
    vram_gib = 80 if "80GB" in gpu else 24
    return NodeFacts(
        node=name,
        source="probed",
        probed_at=START,
        simulated=simulated,
        gpus=tuple(
            Gpu(
                index=index,
                name=gpu,
                vram_bytes=vram_gib * 2**30,
                vram_used_bytes=0,
                driver="580.65.06",
                power_limit_w=400.0 if vram_gib == 80 else 72.0,
                compute_capability="8.0" if vram_gib == 80 else "8.9",
            )
            for index in range(count)
        ),
        cpu="AMD EPYC 7763",
        cpu_cores=16,
        memory_bytes=128 * 2**30,
        disk_free_bytes=500 * 10**9,
        os="Debian GNU/Linux 13",
        kernel="6.12.0",
        engine_version="0.32.0",
        production=Production(manager="systemd", unit="vllm.service", running=True, enabled=True, model=MODEL.name),
        engine_port_free=True,
        model_present=True,
    )


def config_of(choices: Mapping[str, object], name: str | None = None) -> Config:
    """The config of these values, its id made as the records say."""
    flags: dict[str, object] = {"dtype": "bfloat16", "max_model_len": 2048, **choices}
    resolved = {"model": MODEL.model_dump(), "flags": flags, "env": {}, "engine_version": None}
    words = {axis: str(value).lower() if isinstance(value, bool) else str(value) for axis, value in choices.items()}
    return Config(
        config_id=hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()[:12],
        name=name or " ".join(f"{axis}={word}" for axis, word in words.items()),
        choices={} if name else words,
        model=MODEL,
        flags=flags,  # type: ignore[arg-type]
    )


def plan_of(spec: SweepSpec, node: NodeFacts) -> Plan:
    """The whole grid as feasible configs, and one dropped config outside of it."""
    axes = {axis: [choice.flags[axis] for choice in choices] for axis, choices in spec.axes.items()}
    configs = [config_of(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]
    dropped = Dropped(
        config=config_of({"tensor_parallel_size": 3}, name="tensor-parallel-3"),
        rule="tensor_parallel_gpus",
        reason="tensor_parallel_size is 3 and the node has 1 GPU",
    )
    return Plan(
        hardware=node.hardware,
        nodes=(node.node,),
        theoretical=len(configs) + 1,
        feasible=tuple(
            PlannedConfig(config=config, config_class=config.config_id, prediction=prediction_of(config, node))
            for config in configs
        ),
        dropped=(dropped,),
        estimated_duration_s=90.0 * len(configs),
    )


def prediction_of(config: Config, node: NodeFacts) -> Prediction:
    """A forecast that misses the truth by up to 15%, the same way each time."""
    miss = 1 + 0.15 * np.sin(zlib.crc32(config.config_id.encode()))
    tok_per_s = throughput(config, node) * float(miss)
    return Prediction(
        output_tok_per_s=tok_per_s,
        ttft_s=8 / tok_per_s,
        tpot_s=32 / tok_per_s,
        kv_cache_tokens=400_000,
        binding="weights_bandwidth",
        limit_output_tok_per_s=tok_per_s * 1.6,
        uncertainty=0.3,
    )


def throughput(config: Config, node: NodeFacts) -> float:
    """The config's true output tokens per second with 32 requests in flight."""
    flags = config.flags
    speed = 2400.0 if node.gpus and "A100" in node.gpus[0].name else 620.0
    speed *= min(1.0, float(flags.get("max_num_seqs") or 32) / 32) ** 0.7
    speed *= 1 + 0.04 * np.log2(float(flags.get("max_num_batched_tokens") or 2048) / 2048)
    speed *= 1 + 0.2 * (float(flags.get("gpu_memory_utilization") or 0.9) - 0.9)
    speed *= float(flags.get("tensor_parallel_size") or 1) ** 0.75
    return float(speed * (0.88 if flags.get("enforce_eager") else 1.0))


def trial_record(
    spec: SweepSpec,
    *,
    sweep_id: str = "sweep",
    number: int = 1,
    node: NodeFacts | None = None,
    planned: PlannedConfig | None = None,
    replicate: int = 0,
    requests: int = 40,
    noise: float = 0.01,
    started_at: datetime = START,
    seconds: int = 60,
    generator: np.random.Generator | None = None,
) -> tuple[TrialRecord, pl.DataFrame | None]:
    """A trial and the table of its requests; None for a trial that failed before any was sent."""
    generator = generator or np.random.default_rng(0)
    node = node or node_facts("node-1", GPUS[0])
    planned = planned or plan_of(spec, node).feasible[0]
    config = planned.config
    failure = failure_of(config)
    phases = (
        Phase(name="stop production", kind="orchestration", started_s=0.0, duration_s=2.1),
        Phase(name="start engine", kind="engine_start", started_s=2.1, duration_s=31.0),
    )
    runs: list[RunRecord] = []
    frames: list[pl.DataFrame] = []
    if failure is None:
        speed = throughput(config, node) * float(np.exp(generator.normal(0, noise)))
        started_s = 34.0
        for index, level in enumerate(spec.workloads[0].levels):
            run, frame = run_record(spec, node, index, level, speed, requests, started_at, started_s, generator)
            runs.append(run)
            frames.append(frame)
            started_s += run.summary.duration_s + 0.5
        phases += (
            Phase(name="load", kind="load", started_s=34.0, duration_s=started_s - 34.0),
            Phase(name="stop engine", kind="orchestration", started_s=started_s, duration_s=1.4),
            Phase(name="start production", kind="production_start", started_s=started_s + 1.4, duration_s=25.0),
        )
    trial = TrialRecord(
        sweep_id=sweep_id,
        trial_id=f"{number:04d}-{config.config_id[:8]}",
        node=node.node,
        hardware=node.hardware,
        config=config,
        config_class=planned.config_class,
        replicate=replicate,
        simulated=node.simulated,
        status="failed" if failure else "ok",
        failure=failure,
        started_at=started_at,
        duration_s=phases[-1].started_s + phases[-1].duration_s,
        argv=("vllm", "serve", MODEL.name, *(f"--{flag}={value}" for flag, value in config.flags.items())),
        phases=phases,
        startup=StartupFacts(engine_version="0.32.0", kv_cache_tokens=412_000, max_concurrency=201.2, ready_s=31.0)
        if failure is None
        else StartupFacts(engine_version="0.32.0"),
        runs=tuple(runs),
        series=series_of(seconds, node, generator) if failure is None else Series(),
        restoration=Restoration(restored=True, was_running=True, model=MODEL.name, downtime_s=80.0),
        prediction=planned.prediction,
        provenance=PROVENANCE,
    )
    return trial, pl.concat(frames) if frames else None


def failure_of(config: Config) -> Failure | None:
    """Out of memory at 0.95 with the largest batch; None for what runs."""
    if (
        config.flags.get("gpu_memory_utilization") != 0.95
        or int(config.flags.get("max_num_batched_tokens") or 0) < 8192
    ):
        return None
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.22 GiB."
    return Failure(
        phase="engine_start",
        cause="out_of_memory",
        message="GPU memory ran out: 1.22 GiB more were wanted.",
        evidence=(line,),
    )


def engine_log(trial: TrialRecord) -> str:
    """A short log as the engine would have written it."""
    lines = [f"INFO vLLM API server version 0.32.0, argv: {' '.join(trial.argv)}"]
    lines += list(trial.failure.evidence) if trial.failure else ["INFO Application startup complete."]
    return "\n".join(lines) + "\n"


def run_record(
    spec: SweepSpec,
    node: NodeFacts,
    run_index: int,
    level: LoadLevel,
    speed_tok_per_s: float,
    requests: int,
    trial_started_at: datetime,
    started_s: float,
    generator: np.random.Generator,
) -> tuple[RunRecord, pl.DataFrame]:
    """A run of `requests` requests and their table; latency grows as the rate nears what the engine can do."""
    workload = spec.workloads[0].workload
    assert isinstance(workload, SyntheticWorkload), "the factory's workload is synthetic"
    assert isinstance(workload.output_tokens, int), "answers are of one length"
    output_tokens = workload.output_tokens
    input_tokens = np.array(lengths(workload.input_tokens, requests, generator), dtype=np.int64)
    if isinstance(level, ClosedLoad):
        spacing_s = output_tokens / speed_tok_per_s
        crowd = level.concurrency / 32
    else:
        spacing_s = 1 / level.rate_per_s
        crowd = min(1.5, level.rate_per_s * output_tokens / speed_tok_per_s)
    tpot_s = (8 + 24 * crowd) / speed_tok_per_s
    sent = np.arange(requests) * spacing_s
    ttft = generator.lognormal(np.log(6 * tpot_s * (1 + crowd)), 0.25, requests)
    ttft *= 0.4 + 0.6 * input_tokens / input_tokens.mean()
    gaps = generator.gamma(25.0, tpot_s / 25.0, (requests, output_tokens - 1))
    latency = ttft + gaps.sum(axis=1)
    failed = generator.random(requests) < 0.002
    ok = ~failed
    delay = generator.exponential(0.0004, requests)
    frame = pl.DataFrame(
        {
            "run_index": np.full(requests, run_index, dtype=np.int64),
            "request_index": np.arange(requests, dtype=np.int64),
            "phase": ["measured"] * requests,
            "turn": pl.Series([None] * requests, dtype=pl.Int64),
            "due_s": sent,
            "sent_s": sent + delay,
            "first_byte_s": sent + delay + ttft * 0.9,
            "first_token_s": sent + ttft,
            "last_token_s": sent + latency,
            "input_tokens": input_tokens,
            "cached_tokens": np.zeros(requests, dtype=np.int64),
            "output_tokens": np.where(ok, output_tokens, 0),
            "events": np.where(ok, output_tokens, 0),
            "event_times_us": pl.Series(
                (gaps * 1e6).astype(np.int64), dtype=pl.Array(pl.Int64, output_tokens - 1)
            ).cast(pl.List(pl.Int64)),
            "status": np.where(ok, 200, 500).astype(np.int64),
            "error": pl.Series(np.where(ok, "", "http_500")).replace("", None),
        }
    )
    duration_s = float((sent + latency)[ok].max())
    succeeded = int(ok.sum())
    tokens = succeeded * output_tokens
    tok_per_s = tokens / duration_s
    is_closed = isinstance(level, ClosedLoad)
    values = {"ttft_s": ttft[ok], "tpot_s": gaps[ok].mean(axis=1)}
    summary = RunSummary(
        duration_s=duration_s,
        requests_sent=requests,
        requests_ok=succeeded,
        requests_failed=requests - succeeded,
        failures={"http_500": requests - succeeded} if succeeded < requests else {},
        input_tokens=int(input_tokens[ok].sum()),
        output_tokens=tokens,
        request_per_s=succeeded / duration_s,
        output_tok_per_s=tok_per_s,
        input_tok_per_s=int(input_tokens[ok].sum()) / duration_s,
        total_tok_per_s=(int(input_tokens[ok].sum()) + tokens) / duration_s,
        **({"steady_from_s": 0.0, "steady_to_s": duration_s, "steady_waves": 3} if is_closed else {}),
        peak_output_tok_per_s=tok_per_s * 1.1,
        windowed_output_tok_per_s=tuple([round(tok_per_s, 1)] * max(1, int(duration_s))),
        goodput_request_per_s=float(np.mean(ttft[ok] < 0.5)) * succeeded / duration_s,
        within_limits={
            f"{metric}_{percentile}": int((values[metric] <= limit).sum())
            for metric, percentile, limit in spec.slo.limits()
        },
        request_output_tok_per_s=distribution(output_tokens / latency[ok]),
        ttft_s=distribution(ttft[ok]),
        tpot_s=distribution(gaps[ok].mean(axis=1)),
        itl_s=distribution(gaps[ok].ravel()),
        latency_s=distribution(latency[ok]),
    )
    measured = {"ttft_s": summary.ttft_s, "tpot_s": summary.tpot_s}
    slo_met = all(
        (getattr(measured[metric], percentile) or 0) <= limit for metric, percentile, limit in spec.slo.limits()
    )
    power_w = 260.0 if "A100" in node.hardware else 61.0
    run = RunRecord(
        run_index=run_index,
        workload=workload,
        level=level,
        level_label=level.label,
        slo=spec.slo,
        started_at=trial_started_at + timedelta(seconds=started_s),
        started_s=started_s,
        measured_from_s=started_s,
        seed=run_index,
        summary=summary,
        slo_met=slo_met,
        client=ClientHealth(
            cpu_s=tokens * 8e-6,
            cpu_per_token_s=8e-6,
            dispatch_delay_s=distribution(delay),
            loop_lag_s=distribution(delay / 2),
        ),
        engine=EngineCounters(
            generation_tok_per_s=tok_per_s,
            prompt_tok_per_s=summary.input_tok_per_s,
            prefix_cache_hit_rate=0.0,
            preemptions=0,
            running_mean=24.0,
            running_max=32.0,
            kv_cache_usage_mean=0.05,
            kv_cache_usage_max=0.09,
        ),
        energy=Energy(
            source="estimated_tdp" if node.simulated else "energy_counter",
            boundary="gpu_boards",
            energy_j=power_w * duration_s,
            power_w=power_w,
            energy_j_per_output_tok=power_w * duration_s / tokens,
        ),
        verdict=Verdict(status="valid")
        if requests >= 20
        else Verdict(
            status="invalid",
            reasons=(
                Reason(code="too_few_requests", text=f"{requests} requests, at least 20", value=requests, limit=20),
            ),
        ),
    )
    return run, frame


def series_of(seconds: int, node: NodeFacts, generator: np.random.Generator) -> Series:
    """A sample of eight quantities each second; the first two of the power are missing."""
    power = generator.normal(260.0 if "A100" in node.hardware else 61.0, 4.0, seconds).round(1).tolist()
    power[:2] = [None] * min(2, seconds)
    return Series(
        t_s=tuple(float(second) for second in range(seconds)),
        columns={
            "requests_running": tuple(generator.integers(20, 33, seconds).astype(float).tolist()),
            "requests_waiting": tuple(generator.integers(0, 4, seconds).astype(float).tolist()),
            "kv_cache_usage": tuple(generator.uniform(0.02, 0.09, seconds).round(4).tolist()),
            "gpu0_power_w": tuple(power),
            "gpu0_sm_clock_mhz": tuple([1410.0] * seconds),
            "gpu0_temperature_c": tuple(generator.integers(55, 66, seconds).astype(float).tolist()),
            "gpu0_vram_used_bytes": tuple([71.0 * 2**30] * seconds),
            "gpu0_utilization": tuple(generator.uniform(0.8, 1.0, seconds).round(3).tolist()),
        },
    )


def distribution(values: np.ndarray) -> Distribution:
    """Mean, standard deviation and percentiles of the values."""
    if not values.size:
        return Distribution(n=0)
    p25, p50, p75, p90, p95, p99 = (float(value) for value in np.percentile(values, (25, 50, 75, 90, 95, 99)))
    return Distribution(
        n=int(values.size),
        mean=float(values.mean()),
        std=float(values.std()),
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
    )
