"""`tokenpeak load`: offer a load to any OpenAI-compatible server and say what was seen."""

import contextlib
import math
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from tokenpeak.cli import options
from tokenpeak.cli.options import OUTPUT_FILE
from tokenpeak.errors import ExitStatus, suggestion
from tokenpeak.terminal import echo, echo_text

if TYPE_CHECKING:
    from tokenpeak.records import RunRecord


OUTPUT_TOKENS = 128
AT_LEAST_ONE = click.IntRange(min=1)


class _Finite(click.FloatRange):
    """A number in a range, neither infinite nor NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        converted = super().convert(value, param, ctx)
        if not math.isfinite(converted):
            self.fail(f"{value} is no amount.", param, ctx)
        return converted


ABOVE_ZERO = _Finite(min=0, min_open=True)


@click.command(name="load", short_help="Offer a load to a server and measure how it is served.")
@click.argument("url", required=False)
@click.option("--model", help="The name that requests ask for; the one that the server serves when not given.")
@click.option("--concurrency", type=AT_LEAST_ONE, help="Requests in flight (closed loop).")
@click.option("--rate", type=ABOVE_ZERO, help="Requests due per second (open loop).")
@click.option("--max-concurrency", type=AT_LEAST_ONE, help="Of a rate: more than so many wait in the client.")
@click.option(
    "--arrivals",
    type=click.Choice(["constant", "poisson"]),
    default="poisson",
    show_default=True,
    help="How the gaps between due requests are drawn.",
)
@click.option(
    "--max-rate-under", help="Search the highest rate within limits, such as ttft_p99_ms=1000,tpot_p99_ms=60."
)
@click.option("--requests", type=AT_LEAST_ONE, help="How many requests are measured.")
@click.option(
    "--duration",
    type=ABOVE_ZERO,
    help="For how many seconds requests are sent. An answer may take longer: the run ends when each has ended, has "
    "sent nothing for 120 s, or after 900 s in all.",
)
@click.option(
    "--warmup-requests", type=click.IntRange(min=0), default=0, show_default=True, help="Sent first and not counted."
)
@click.option("--input-tokens", type=AT_LEAST_ONE, default=128, show_default=True, help="Prompt tokens of a request.")
@click.option(
    "--output-tokens",
    type=AT_LEAST_ONE,
    help=f"Generated tokens of a request; {OUTPUT_TOKENS} unless given, and as many as the answers of chat logs had.",
)
@click.option(
    "--endpoint",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    show_default=True,
    help="Which of the API's endpoints is asked.",
)
@click.option(
    "--dataset",
    "dataset_path",
    type=click.Path(path_type=Path),
    help="Prompts to send: JSONL or Parquet with a column prompt, ShareGPT, or chat logs with messages.",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path),
    help="Recorded requests, at their own times unless it is said how much; `tokenpeak observe` writes such a file.",
)
@click.option("--workload", "workload_path", type=click.Path(path_type=Path), help="A workload in YAML or JSON.")
@click.option("--slo", help="Limits to hold, such as ttft_p95_ms=500,tpot_p95_ms=50.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts, lengths and arrivals.")
@click.option("--no-ignore-eos", is_flag=True, help="Let the model end its answers; for servers that are not vLLM.")
@click.option("--api-key-file", type=click.Path(path_type=Path), help="A file that holds the API key.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header of each request; repeatable.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Certificates to trust besides the system's.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@options.style("table", "For people, or the run record for machines.")
@click.option("--output", type=OUTPUT_FILE, help="Where the run record is written, as JSON.")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="A file that holds a whole job; stands alone.")
def load(url: str | None, job_path: Path | None, style: str, output: Path | None, **given: Any) -> None:
    """Offer a load to the OpenAI-compatible server at URL and measure how it is served.

    Give how much by one of --concurrency, --rate and --max-rate-under, or a --trace, whose times say it. Exit status
    0: measured, and the SLO of --slo is met; 1: nothing answered, or no request ended well; 2: an option or file is
    wrong; 3: the SLO is missed; 4: the run is invalid.
    """
    from tokenpeak.files import delete, write_atomically
    from tokenpeak.loadgen.job import job_server, read_job
    from tokenpeak.loadgen.run import run_job

    if job_path is not None:
        job = read_job(job_path)
        run_job(job)
        if job.quality is not None:
            from tokenpeak.quality.measure import measure_after

            measure_after(job, job.quality)
        return
    if url is None:
        raise click.UsageError("Give the server's URL, or --job.")
    from tokenpeak.loadgen.http.server import served_model
    from tokenpeak.loadgen.progress import summary_text, watching

    with tempfile.TemporaryDirectory() as folder:
        job = _job(url, Path(folder), given)
        if output is not None and output.is_file():
            # A run that fails leaves no record of one before.
            delete(output)
        job = job.model_copy(update={"model": served_model(job_server(job), given["model"])})
        with watching() as on_status:
            record = run_job(job, on_status)[0]
    written = record.model_dump_json(indent=1)
    if output is not None:
        write_atomically(output, written + "\n")
    echo_text(summary_text(record) if style == "table" else written)
    sys.exit(_status(record))


def _status(record: "RunRecord") -> ExitStatus:
    """What the run says to a script: whether any request ended well, the run is valid, and the SLO is held."""
    if not record.summary.requests_ok:
        return ExitStatus.ERROR
    if not record.verdict.well_measured:
        return ExitStatus.INVALID
    missed = record.rate_held is False or (record.max_rate is not None and record.max_rate.rate_per_s is None)
    return ExitStatus.MISSED if missed else ExitStatus.GOOD


def _job(url: str, folder: Path, given: dict[str, Any]) -> Any:
    """The options as a job of one run."""
    from pydantic import ValidationError

    from tokenpeak.errors import WorkloadError
    from tokenpeak.loadgen.datasets import has_chats
    from tokenpeak.loadgen.job import LoadJob
    from tokenpeak.spec.schema import read_workload

    amounts = sum(given[name] is not None for name in ("concurrency", "rate", "max_rate_under"))
    if amounts > 1 or (amounts == 0 and given["trace_path"] is None):
        raise click.UsageError("Give one of --concurrency, --rate and --max-rate-under, or a --trace to replay.")
    if given["max_concurrency"] is not None and given["concurrency"] is not None:
        raise click.UsageError("--max-concurrency is of a rate; --concurrency alone is a closed loop.")
    workload: Any
    if given["workload_path"] is not None:
        workload = read_workload(given["workload_path"]).model_dump()
    elif (trace := given["trace_path"]) is not None:
        workload = {"kind": "trace", "name": "trace", "path": str(trace), "endpoint": given["endpoint"]}
        workload["seed"] = given["seed"]
    elif (dataset := given["dataset_path"]) is not None:
        is_chats = has_chats(dataset)
        has_answers = is_chats or dataset.suffix == ".json"
        workload = {
            "kind": "dataset",
            "name": "dataset",
            "endpoint": "chat" if is_chats else given["endpoint"],
            "path": str(dataset),
            "output_tokens": given["output_tokens"] or (None if has_answers else OUTPUT_TOKENS),
            "seed": given["seed"],
        }
    else:
        workload = {
            "kind": "synthetic",
            "name": "synthetic",
            "endpoint": given["endpoint"],
            "input_tokens": given["input_tokens"],
            "output_tokens": given["output_tokens"] or OUTPUT_TOKENS,
            "seed": given["seed"],
        }
    if given["no_ignore_eos"]:
        workload["ignore_eos"] = False
    arrivals = {"arrivals": given["arrivals"], "max_concurrency": given["max_concurrency"]}
    level: dict[str, Any]
    if given["max_rate_under"] is not None:
        level = {"max_rate_under": _limits(given["max_rate_under"]), **arrivals}
    else:
        level = {name: given[name] for name in ("requests", "warmup_requests")} | {"duration_s": given["duration"]}
        if given["concurrency"] is not None:
            level["concurrency"] = given["concurrency"]
            level["requests"] = level["requests"] or (None if given["duration"] else 4 * given["concurrency"])
        elif given["rate"] is None:
            del level["duration_s"]
            level |= {"replay": True, "max_concurrency": given["max_concurrency"]}
        else:
            level |= {"rate_per_s": given["rate"], **arrivals}
    run = {
        "run_index": 0,
        "workload": workload,
        "level": level,
        "slo": _limits(given["slo"] or ""),
        "seed": given["seed"],
    }
    headers = dict(header.split(":", 1) for header in given["headers"] if ":" in header)
    try:
        job = LoadJob.model_validate(
            {
                "base_url": url,
                "model": given["model"] or "",
                "output_dir": folder,
                "runs": [run],
                "api_key_file": given["api_key_file"],
                "headers": {name.strip(): value.strip() for name, value in headers.items()},
                "verify_tls": not given["insecure"],
                "ca_file": given["ca_file"],
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][2:]) or "load"
        raise WorkloadError(f"{where}: {first['msg']} (given: {first['input']!r})") from error
    _require_enough(job)
    return job


def _require_enough(job: Any) -> None:
    """Raise a usage error where so few requests cannot show a percentile: no such run would be valid."""
    (run,) = job.runs
    needed = -(-run.slo.requests_needed() // getattr(run.workload, "turns", 1))
    if run.level.requests is not None and run.level.requests < needed:
        raise click.UsageError(
            f"{run.level.requests} requests cannot show the percentiles of --slo. Give --requests {needed} or more."
        )


def _limits(text: str) -> dict[str, float]:
    from tokenpeak.spec.slo import Slo

    limits = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise click.UsageError(f"A limit is written like ttft_p99_ms=1000, not {item!r}.")
        if name.strip() not in Slo.model_fields:
            raise click.UsageError(f"There is no limit {name.strip()!r}. {suggestion(name.strip(), Slo.model_fields)}")
        try:
            limits[name.strip()] = float(value)
        except ValueError as error:
            raise click.UsageError(f"The limit {item!r} is not a number of milliseconds.") from error
    return limits


@click.command(name="calibrate", short_help="Measure the load client's own error on the path to a server.")
@click.option("--streams", type=int, multiple=True, help="Streams to try; may be given several times.")
@click.option("--seconds", type=float, default=4.0, show_default=True, help="How long each point is measured.")
@click.option(
    "--inventory",
    "inventory_name",
    help="From its load hosts, to a test server put on its node.",
)
@click.option("--node", "node_name", help="Which node of the inventory; the first when not given.")
@click.option("--through", "url", help="To a test server (see --serve) at this URL: behind a proxy, a tunnel.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Certificates to trust besides the system's.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--serve", metavar="ADDRESS:PORT", help="Serve the timetable there until Ctrl-C, and measure nothing.")
def calibrate(serve: str | None, **given: Any) -> None:
    """Measure the load client's error against the test server and keep it for that network path."""
    from tokenpeak.loadgen import calibration as module

    if serve is not None:
        _serve(serve)
        return
    setup, server = _prepared(given)
    measured = module.calibrate(
        lambda point: echo(f"{point.streams} streams: measured", err=True),
        streams=given["streams"] or module.STREAMS,
        seconds=given["seconds"],
        setup=setup,
        server=server,
    )
    echo_text(module.as_text(measured))


def _prepared(given: dict[str, Any]) -> tuple[Any, Any]:
    """The network path that was asked for, and what serves at its end."""
    from tokenpeak.loadgen.calibration import Setup
    from tokenpeak.loadgen.test_server import local_test_server

    url = given["url"]
    if given["inventory_name"] is not None:
        setup, server = _on_node(given["inventory_name"], given["node_name"], placed=url is None)
    else:
        setup, server = Setup(), local_test_server
    if url is not None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        path = setup.path.model_copy(update={"tls": parts.scheme == "https", "server": str(parts.hostname)})
        trust = {"ca_file": given["ca_file"], "verify_tls": not given["insecure"]}
        return setup.model_copy(update={"path": path, **trust}), lambda _ttft_s, _itl_s: contextlib.nullcontext(url)
    return setup, server


def _on_node(inventory_name: str, node_name: str | None, *, placed: bool) -> tuple[Any, Any]:
    """The path from an inventory's load hosts to its node, which is probed only where the server is placed there."""
    from tokenpeak.errors import NodeError
    from tokenpeak.sweep.inventory.nodes import read_inventory
    from tokenpeak.sweep.probe import probe
    from tokenpeak.sweep.trial.load_hosts import node_server, node_setup, prepare_load_hosts

    inventory = read_inventory(inventory_name)
    node = inventory.node(node_name) if node_name else inventory.nodes[0]
    prepare_load_hosts(inventory, say=lambda line: echo(line, err=True))
    setup = node_setup(inventory, node)
    if not placed:
        return setup, None
    probed = probe(inventory.limited_to((node.name,)))
    ready = probed.answered.get(node.name)
    if ready is None:
        raise NodeError("\n".join(probed.complaints()))
    return setup, lambda ttft_s, itl_s: node_server(inventory, node, ready, ttft_s, itl_s)


def _serve(where: str) -> None:
    from tokenpeak.loadgen.calibration import TOKEN_RATE_PER_STREAM, TTFT_S
    from tokenpeak.loadgen.test_server import serving_argv, started

    address, colon, port = where.rpartition(":")
    if not colon or not port.isdigit():
        raise click.UsageError(f"--serve takes an address and a port, such as 0.0.0.0:8099, not {where!r}.")
    with started(serving_argv(address, int(port), TTFT_S, 1 / TOKEN_RATE_PER_STREAM)) as bound:
        echo(f"A timetable is served at {address}:{bound}; Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
