"""`tokenpeak quality`: have a server answer as the reference, or measure how another agrees with those answers."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tokenpeak.errors import LoadError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.terminal import echo

if TYPE_CHECKING:
    from tokenpeak.loadgen.target import Server
    from tokenpeak.records.quality import QualityVerdict

Command = TypeVar("Command", bound=Callable[..., Any])

STATUSES = {"pass": ExitStatus.GOOD, "fail": ExitStatus.MISSED, "unknown": ExitStatus.INVALID}


def _server_options(command: Command) -> Command:
    """The options that both commands have."""
    for option in (
        click.option("--insecure", is_flag=True, help="Do not check the server's certificate."),
        click.option("--ca-file", type=click.Path(path_type=Path), help="Certificates to trust besides the system's."),
        click.option("--api-key-file", type=click.Path(path_type=Path), help="A file that holds the API key."),
        click.option("--model", required=True, help="The name that requests ask for."),
    ):
        command = option(command)
    return command


@click.group(short_help="Measure whether a server's answers are as good as a reference's.")
def quality() -> None:
    """Measure whether a vLLM server answers as well as a reference: the same model at full precision, say.

    Record the reference once, then compare servers that run it in another precision, with a draft model or by another
    release of vLLM.
    """


@quality.command(short_help="Record the answers of the server at URL as the reference.")
@click.argument("url")
@_server_options
@click.option("--tokens", type=click.IntRange(10_000), help="Tokens that a measurement processes; 60,000 unless given.")
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="Where the reference is written, as JSON."
)
def record(url: str, model: str, tokens: int | None, output: Path, **given: Any) -> None:
    """Have the server at URL answer the built-in prompts, and measure how much another batch changes its answers."""
    from tokenpeak.atomic import write_atomically
    from tokenpeak.quality.measure import TOKENS, record_reference
    from tokenpeak.quality.verdict import judge
    from tokenpeak.spec.quality import MARGIN_NATS

    reference = record_reference(_server(url, given), model, tokens=tokens or TOKENS)
    if reference.floor.problem is not None:
        raise LoadError(f"The noise floor could not be measured: {reference.floor.problem}")
    write_atomically(output, reference.model_dump_json() + "\n")
    own = judge(reference.floor, reference, MARGIN_NATS)
    right = f"{own.reference_tasks_right} of {own.prompts} answers are right"
    echo(f"{output}: {len(reference.answers)} answers, {right}; {reference.floor.duration_s:.0f} s a measurement")
    if own.status != "pass":
        echo(f"WARNING nothing can pass against it: {own.reason}")


@quality.command(short_help="Compare the server at URL with a recorded reference.")
@click.argument("url")
@click.argument("reference", type=click.Path(path_type=Path))
@_server_options
@click.option("--margin", type=click.FloatRange(0, min_open=True), help="Nats a token above the noise floor; 0.02.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the measurement is written, as JSON.")
def compare(url: str, reference: Path, model: str, margin: float | None, output: Path | None, **given: Any) -> None:
    """Measure how the answers of the server at URL agree with REFERENCE, and say whether they pass.

    The exit status is 0 where they pass, 3 where they fail and 4 where it cannot be known.
    """
    from tokenpeak.atomic import write_atomically
    from tokenpeak.quality.measure import measure
    from tokenpeak.quality.reference import read_reference
    from tokenpeak.quality.verdict import judge
    from tokenpeak.spec.quality import MARGIN_NATS

    recorded = read_reference(reference)
    measured = measure(_server(url, given), model, recorded)
    verdict = judge(measured, recorded, margin or MARGIN_NATS)
    if output is not None:
        write_atomically(output, measured.model_dump_json(indent=1) + "\n")
    for line in _lines(verdict):
        echo(line)
    if verdict.kl is not None:
        echo(f"took {measured.duration_s:.1f} s, {measured.tokens:,} tokens")
    sys.exit(STATUSES[verdict.status])


def _lines(verdict: "QualityVerdict") -> list[str]:
    """The verdict in words, and the figures behind it."""
    lines = [f"{verdict.status}: {verdict.reason}"]
    rows = {
        "divergence from the reference": verdict.kl,
        "decoding from prefill": verdict.decode_kl,
        "regret of generated tokens": verdict.decode_regret,
    }
    for name, found in rows.items():
        if found is not None:
            lines.append(f"  {name:30} {found.estimate:8.4f} nats a token ({found.low:.4f} to {found.high:.4f})")
    if verdict.top1_agreement is not None and verdict.perplexity_ratio is not None:
        lines.append(f"  {'same likeliest token':30} {verdict.top1_agreement:8.1%}")
        lines.append(f"  {'ratio of perplexities':30} {verdict.perplexity_ratio:8.4f}")
        tasks = f"{verdict.tasks_right} of {verdict.prompts}, the reference's {verdict.reference_tasks_right}"
        lines.append(f"  {'right answers':30} {tasks:>8}")
    return lines


def _server(url: str, given: dict[str, Any]) -> "Server":
    from tokenpeak.loadgen.target import Server

    key_file: Path | None = given["api_key_file"]
    try:
        key = key_file.read_text().strip() if key_file is not None else None
    except OSError as error:
        raise LoadError(f"The API key's file cannot be read: {error}") from error
    return Server(url, api_key=key, verify=not given["insecure"], ca_file=given["ca_file"])
